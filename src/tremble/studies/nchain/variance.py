"""Counts of the optimal action as the right end's variance grows: the paper's appendix table."""

from __future__ import annotations

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import Direction, direction, mean_interval
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import COLUMNS, NChainResult, count_interval, load_result
from tremble.studies.nchain.settings import AGENTS, MAIN_PAIR, PAIRS, published, verdict_table
from tremble.studies.parts import by_seed, values, write_runs
from tremble.sweep_records import Cell

TRENDS: dict[Direction, str] = {"above": "rises", "below": "falls", "undecided": "no trend found"}
"""By where the interval of the slope lies."""


def chosen_pairs(options: Options) -> tuple[tuple[int, int], ...]:
    """All pairs of means; a few in the quick version."""
    return PAIRS[::3] if options.quick else PAIRS


def cells(options: Options) -> list[Cell]:
    """Four agents by the pairs; the default pair is not spelled out, so that its runs are shared with other studies."""
    return [
        Cell(f"{agent} | {low} | {high}", agent, env_options={} if (low, high) == MAIN_PAIR else means(low, high))
        for agent in AGENTS
        for low, high in chosen_pairs(options)
    ]


def means(low: int, high: int) -> dict[str, float]:
    """Options of the environment."""
    return {"right_low": float(low), "right_high": float(high)}


def of(results: Results, agent: str, options: Options) -> list[list[NChainResult]]:
    """The runs of an agent, by pair."""
    return [results[f"{agent} | {low} | {high}"] for low, high in chosen_pairs(options)]


def draw(results: Results, options: Options) -> None:
    """Count against the distance of the two Gaussians, ours and the paper's."""
    distance = np.array([b - a for a, b in chosen_pairs(options)])
    figure, axes = figures.new(1, len(AGENTS), 13, 3.6, sharey=True)
    for axis, agent in zip(axes, AGENTS, strict=True):
        colour, counts = figures.COLOURS[agent], [values(runs, "count") for runs in of(results, agent, options)]
        for x, here in zip(distance, counts, strict=True):
            axis.scatter(np.full(len(here), x), here, s=12, color=colour, alpha=0.45, linewidths=0)
        label = "ours: mean (line) and seeds (dots), in each agent's colour"
        axis.plot(distance, [np.mean(here) for here in counts], color=colour, linewidth=2.2, label=label)
        theirs = [published(agent, pair) for pair in chosen_pairs(options)]
        axis.plot(distance, theirs, "s-", color="#111111", linewidth=1.1, markersize=4, label="paper")
        axis.set(title=figures.NAMES[agent], xlabel="distance of the two means", ylim=(0, 20_500))
        figures.thousands(axis.yaxis)
    axes[0].set_ylabel("optimal actions")
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figures.save(figure, options.out / "variance")


def analyse(results: Results, options: Options) -> str:
    """Table, trend and report."""
    draw(results, options)
    pairs = chosen_pairs(options)
    write_runs(options.out / "counts.csv", results, COLUMNS, cell=["agent", "right_low", "right_high"])
    table, trends, averages = [], [], {}
    distance = [high - low for low, high in pairs]
    for agent in AGENTS:
        runs, theirs = of(results, agent, options), [published(agent, pair) for pair in pairs]
        ours = [count_interval(found, options.steps).text() for found in runs]
        table += [[figures.NAMES[agent], "paper", *(f"{count:,}" for count in theirs)], ["", "ours", *ours]]
        found = [by_seed(here, "count") for here in runs]
        # Seeds are independent, runs of one seed are not: one slope for every seed that has all pairs.
        counts = {seed: [by[seed] for by in found] for seed in found[0] if all(seed in by for by in found)}
        slopes = mean_interval([float(np.polyfit(distance, numbers, 1)[0]) for numbers in counts.values()])
        trend = TRENDS.get(direction(slopes, quick=options.quick), "no verdict")
        published_slope = f"{np.polyfit(distance, theirs, 1)[0]:+,.0f}"
        claim = "falls" if agent == "dltv" else "flat"
        trends.append([figures.NAMES[agent], claim, published_slope, slopes.text(), trend])
        averages[agent] = {seed: float(np.mean(numbers)) for seed, numbers in counts.items()}
    return f"""# Counts of the optimal action as the variance grows

Eight pairs of means for the right end, all with mean 9. {options.steps:,} steps, seeds 0 to {options.seeds - 1}.

![variance](variance.png)

{tables.markdown(["agent", "", *[str(p) for p in pairs]], table, 2)}
Cells are mean [95 % t interval] over seeds.

## Is there a trend?

The paper: "the performance of DLTV decreases gradually, while other algorithms show consistent results". Slope of the count on
the distance of the two means, per unit of distance (one slope per seed, then a t interval over seeds):

{tables.markdown(["agent", "paper says", "paper's slope", "our slope [95 %]", "ours"], trends, 2)}
## Differences, averaged over the pairs

{verdict_table(averages, pairs, options)}
Raw data: `counts.csv`.
"""


STUDY = Study(
    "nchain-variance",
    "the appendix table: eight reward pairs by four agents",
    cells,
    analyse,
    seeds=4,
    load=load_result,
)
