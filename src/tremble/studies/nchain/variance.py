"""Counts of the optimal action as the right end's variance grows: the paper's appendix table."""

from __future__ import annotations

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval, mean_interval, verdict
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.counts import CLAIMS, minus
from tremble.studies.nchain.result import load_result
from tremble.studies.nchain.settings import AGENTS, PAIRS, PAPER_COUNTS, variance_cells

TRENDS = {1: "rises", -1: "falls", 0: "no trend found"}
"""By the sign of the interval of the slope."""


def present_pairs(results: Results) -> list[tuple[int, int]]:
    """The pairs that were run, in the paper's order."""
    return [pair for pair in PAIRS if f"{AGENTS[0]} {pair}" in results]


def counts(results: Results, agent: str, pair: tuple[int, int]) -> list[int]:
    """Final counts of every seed."""
    return [o.count for o in results[f"{agent} {pair}"]]


def by_seed(results: Results, agent: str, pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Counts over the pairs, for every seed that has them all: seeds are independent, runs of one seed are not."""
    found = [{o.seed: o.count for o in results[f"{agent} {pair}"]} for pair in pairs]
    return {seed: [f[seed] for f in found] for seed in found[0] if all(seed in f for f in found)}


def slopes(results: Results, agent: str, pairs: list[tuple[int, int]]) -> list[float]:
    """Slope of the count on the distance of the two means, one per seed."""
    distance = [b - a for a, b in pairs]
    return [float(np.polyfit(distance, counts, 1)[0]) for counts in by_seed(results, agent, pairs).values()]


def mean_counts(results: Results, agent: str, pairs: list[tuple[int, int]]) -> dict[int, float]:
    """Mean count over the pairs, by seed."""
    return {seed: float(np.mean(counts)) for seed, counts in by_seed(results, agent, pairs).items()}


def draw(results: Results, options: Options) -> None:
    """Count against the distance of the two Gaussians, ours and the paper's."""
    pairs = present_pairs(results)
    distance = np.array([b - a for a, b in pairs])
    figure, axes = figures.new(1, len(AGENTS), 13, 3.6, sharey=True)
    for axis, agent in zip(axes, AGENTS, strict=True):
        colour = figures.COLOURS[agent]
        intervals = [mean_interval(counts(results, agent, pair), between=(0, options.steps)) for pair in pairs]
        for x, pair in zip(distance, pairs, strict=True):
            values = counts(results, agent, pair)
            axis.scatter(np.full(len(values), x), values, s=12, color=colour, alpha=0.45, linewidths=0)
        axis.plot(
            distance,
            [i.estimate for i in intervals],
            color=colour,
            linewidth=2.2,
            label="ours: mean (line) and seeds (dots), in each agent's colour",
        )
        theirs = [PAPER_COUNTS[agent][PAIRS.index(pair)] for pair in pairs]
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
    pairs = present_pairs(results)
    tables.write_csv(
        options.out / "counts.csv",
        ["agent", "right_low", "right_high", "seed", "optimal_count", "left_count", "w2_left"],
        [
            [agent, *pair, o.seed, o.count, o.left_count, f"{o.w2_left:.5f}"]
            for agent in AGENTS
            for pair in pairs
            for o in results[f"{agent} {pair}"]
        ],
    )
    table = []
    for agent in AGENTS:
        paper_cells = [f"{PAPER_COUNTS[agent][PAIRS.index(pair)]:,}" for pair in pairs]
        our_cells = [mean_interval(counts(results, agent, pair), between=(0, options.steps)).text() for pair in pairs]
        table += [[figures.NAMES[agent], "paper", *paper_cells], ["", "ours", *our_cells]]
    trends = []
    for agent in AGENTS:
        ours = mean_interval(slopes(results, agent, pairs))
        slope = np.polyfit([b - a for a, b in pairs], [PAPER_COUNTS[agent][PAIRS.index(p)] for p in pairs], 1)[0]
        claim = "falls" if agent == "dltv" else "flat"
        trends.append([figures.NAMES[agent], claim, f"{slope:+,.0f}", ours.text(), TRENDS[ours.sign]])
    pooled = []
    for first, second in CLAIMS:
        difference = difference_interval(mean_counts(results, first, pairs), mean_counts(results, second, pairs))
        theirs = float(
            np.mean([PAPER_COUNTS[first][PAIRS.index(p)] - PAPER_COUNTS[second][PAIRS.index(p)] for p in pairs])
        )
        pooled.append(
            [minus(first, second), f"{theirs:+,.0f}", difference.text(), f"**{verdict(difference, theirs)}**"]
        )
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

{tables.markdown(["difference", "paper", "ours [95 %]", "verdict"], pooled)}
Raw data: `counts.csv`.
"""


STUDY = Study(
    "nchain-variance",
    "the appendix table: eight reward pairs by four agents",
    variance_cells,
    analyse,
    seeds=4,
    load=load_result,
)
