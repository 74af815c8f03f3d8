"""Counts of the optimal action as the right end's variance grows: the paper's appendix table."""

from __future__ import annotations

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import Direction, direction, mean_interval
from tremble.studies.kit import Cell, Options, Results, Study
from tremble.studies.nchain.counts import verdict_table
from tremble.studies.nchain.result import COLUMNS, count_by_seed, count_interval, load_result
from tremble.studies.nchain.settings import AGENTS, MAIN_PAIR, PAIRS, published

TRENDS: dict[Direction, str] = {
    "above": "rises",
    "below": "falls",
    "undecided": "no trend found",
    "no verdict": "no verdict",
}
"""By where the interval of the slope lies."""


def chosen_pairs(options: Options) -> tuple[tuple[int, int], ...]:
    """All pairs of means; a few in the quick version."""
    return PAIRS[::3] if options.quick else PAIRS


def cells(options: Options) -> list[Cell]:
    """Four agents by the pairs; the default pair is not spelled out, so that its runs are shared with other studies."""
    found = []
    for pair in chosen_pairs(options):
        means = {} if pair == MAIN_PAIR else {"right_low": float(pair[0]), "right_high": float(pair[1])}
        found += [Cell(f"{agent} {pair}", agent, {}, means) for agent in AGENTS]
    return found


def by_seed(results: Results, agent: str, options: Options) -> dict[int, list[int]]:
    """Counts over the pairs, for every seed that has them all: seeds are independent, runs of one seed are not."""
    found = [count_by_seed(results[f"{agent} {pair}"]) for pair in chosen_pairs(options)]
    return {seed: [counts[seed] for counts in found] for seed in found[0] if all(seed in counts for counts in found)}


def draw(results: Results, options: Options) -> None:
    """Count against the distance of the two Gaussians, ours and the paper's."""
    pairs = chosen_pairs(options)
    distance = np.array([b - a for a, b in pairs])
    figure, axes = figures.new(1, len(AGENTS), 13, 3.6, sharey=True)
    for axis, agent in zip(axes, AGENTS, strict=True):
        colour = figures.COLOURS[agent]
        means = []
        for x, pair in zip(distance, pairs, strict=True):
            values = [run.count for run in results[f"{agent} {pair}"]]
            axis.scatter(np.full(len(values), x), values, s=12, color=colour, alpha=0.45, linewidths=0)
            means.append(np.mean(values))
        label = "ours: mean (line) and seeds (dots), in each agent's colour"
        axis.plot(distance, means, color=colour, linewidth=2.2, label=label)
        theirs = [published(agent, pair) for pair in pairs]
        axis.plot(distance, theirs, "s-", color="#111111", linewidth=1.1, markersize=4, label="paper")
        axis.set(title=figures.NAMES[agent], xlabel="distance of the two means", ylim=(0, 20_500))
        figures.thousands(axis.yaxis)
    axes[0].set_ylabel("optimal actions")
    handles, names = axes[-1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    figures.save(figure, options.out / "variance")


def analyse(results: Results, options: Options) -> str:
    """Table, trend and report."""
    draw(results, options)
    pairs = chosen_pairs(options)
    runs = [(agent, pair, run) for agent in AGENTS for pair in pairs for run in results[f"{agent} {pair}"]]
    tables.write_csv(
        options.out / "counts.csv",
        ["agent", "right_low", "right_high", *COLUMNS],
        [[agent, *pair, *run.row()] for agent, pair, run in runs],
    )
    table, trends, means = [], [], {}
    distance = [high - low for low, high in pairs]
    for agent in AGENTS:
        name, counts = figures.NAMES[agent], by_seed(results, agent, options)
        theirs = [published(agent, pair) for pair in pairs]
        ours = [count_interval(results[f"{agent} {pair}"], options.steps).text() for pair in pairs]
        table += [[name, "paper", *[f"{count:,}" for count in theirs]], ["", "ours", *ours]]
        slope = np.polyfit(distance, theirs, 1)[0]
        slopes = mean_interval([float(np.polyfit(distance, values, 1)[0]) for values in counts.values()])
        claim = "falls" if agent == "dltv" else "flat"
        trends.append([name, claim, f"{slope:+,.0f}", slopes.text(), TRENDS[direction(slopes, quick=options.quick)]])
        means[agent] = {seed: float(np.mean(values)) for seed, values in counts.items()}
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

{verdict_table(means, pairs, options)}
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
