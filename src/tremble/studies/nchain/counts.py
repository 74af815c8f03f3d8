"""How often the optimal action is taken: the paper's figure of total counts."""

from __future__ import annotations

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval, mean_interval, verdict
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import load_result
from tremble.studies.nchain.settings import AGENTS, MAIN_PAIR, PAPER_COUNTS, main_cells

CLAIMS = (
    ("pqr", "qrdqn"),
    ("pqr", "dltv"),
    ("p_dltv", "qrdqn"),
    ("p_dltv", "dltv"),
    ("qrdqn", "dltv"),
    ("pqr", "p_dltv"),
)
"""Ordered pairs whose difference the paper's numbers imply."""


def published(agent: str) -> int:
    """The paper's count at the pair (5, 13)."""
    return PAPER_COUNTS[agent][MAIN_PAIR]


def minus(first: str, second: str) -> str:
    """Name of a difference of two agents."""
    return f"{figures.NAMES[first]} − {figures.NAMES[second]}"


def verdict_rows(counts: dict[str, dict[int, int]]) -> list[list[str]]:
    """A row per claim: the paper's difference, ours with its interval, and the verdict."""
    rows = []
    for first, second in CLAIMS:
        theirs = published(first) - published(second)
        ours = difference_interval(counts[first], counts[second])
        rows.append([minus(first, second), f"{theirs:+,}", ours.text(), f"**{verdict(ours, theirs)}**"])
    return rows


def count_table(results: Results) -> str:
    """Counts of the paper and of our runs, by both definitions of an optimal action."""
    rows = []
    for agent in AGENTS:
        outcomes = results[agent]
        counts = [o.count for o in outcomes]
        lefts = [o.left_count for o in outcomes]
        rows.append(
            [
                figures.NAMES[agent],
                f"{published(agent):,}",
                mean_interval(counts, between=(0, outcomes[0].steps[-1])).text(),
                mean_interval(lefts, between=(0, outcomes[0].steps[-1])).text(),
                f"{min(counts):,} … {max(counts):,}",
                len(counts),
            ]
        )
    header = ["agent", "paper (4 seeds)", "optimal actions [95 %]", "`left` alone [95 %]", "single seeds", "seeds"]
    return tables.markdown(header, rows)


def draw(results: Results, options: Options) -> None:
    """Counts over time for every seed, and final counts by agent."""
    figure, (over_time, final) = figures.new(1, 2, 10.5, 4.2, width_ratios=[3, 2])
    for place, agent in enumerate(AGENTS):
        colour, outcomes = figures.COLOURS[agent], results[agent]
        curves = np.stack([o.optimal for o in outcomes])
        steps = outcomes[0].steps
        for curve in curves:
            over_time.plot(steps, curve, color=colour, alpha=0.18, linewidth=0.8)
        over_time.plot(steps, curves.mean(0), color=colour, linewidth=2.4, label=figures.NAMES[agent])
        counts = curves[:, -1]
        spread = np.linspace(-0.16, 0.16, len(counts)) if len(counts) > 1 else np.zeros(1)
        final.scatter(place + spread, np.sort(counts), s=16, color=colour, alpha=0.75, linewidths=0)
        ours = mean_interval(counts, between=(0, steps[-1]))
        bar = [[error] for error in ours.errors]
        if len(counts) > 1:
            final.errorbar(place + 0.28, ours.estimate, bar, color=colour, fmt="o", capsize=4, markersize=6)
        final.plot([place - 0.35, place + 0.35], [published(agent)] * 2, color="#111111", linewidth=1.6)
    end = results[AGENTS[0]][0].steps[-1]
    over_time.plot([0, end], [0, end], "--", color=figures.COLOURS["oracle"], linewidth=1.2, label="oracle")
    over_time.set(xlabel="environment steps", ylabel="optimal actions so far", title="Optimal actions over time")
    over_time.legend(loc="upper left")
    final.set(title="Final counts (black bar: the paper)", ylim=(0, None))
    final.set_xticks(range(len(AGENTS)), [figures.NAMES[a] for a in AGENTS])
    for axis in (over_time.xaxis, over_time.yaxis, final.yaxis):
        figures.thousands(axis)
    figures.save(figure, options.out / "counts")


def write_data(results: Results, options: Options) -> None:
    """Per-seed data."""
    tables.write_csv(
        options.out / "counts.csv",
        ["agent", "seed", "optimal_count", "left_count", "w2_left"],
        [[a, o.seed, o.count, o.left_count, f"{o.w2_left:.5f}"] for a in results for o in results[a]],
    )
    tables.write_csv(
        options.out / "curves.csv",
        ["agent", "seed", "step", "optimal_count", "left_count"],
        [
            [a, o.seed, *row]
            for a in results
            for o in results[a]
            for row in zip(o.steps, o.optimal, o.left, strict=True)
        ],
    )


BIMODAL = """The distribution over seeds is wide and bimodal (an agent finds the left end early
or very late), so means of 4 seeds, as published, differ by thousands between sets of seeds."""


def analyse(
    results: Results, options: Options, settings: str = "the paper's settings", about_seeds: str = BIMODAL
) -> str:
    """Figures, data and report."""
    write_data(results, options)
    draw(results, options)
    counts = {agent: {o.seed: o.count for o in results[agent]} for agent in AGENTS}
    header = ["difference", "paper", "ours [95 %]", "verdict"]
    return f"""# Total count of optimal actions on N-Chain

{options.steps:,} steps, seeds 0 to {options.seeds - 1}, {settings}, right end (5, 13).

![counts](counts.png)

{count_table(results)}
An action counts as optimal if it is `left` in s1, s2 or s3, or anything in s0, where every action only collects the
reward. The paper may have counted `left` alone; both are given. The black bars are the paper's numbers, from its
appendix table (4 seeds); its figure has 10 seeds and no numbers.

## Verdicts

{tables.markdown(header, verdict_rows(counts))}
*Reproduced*: the same sign as the paper, and our interval of the difference excludes 0. *Not reproduced*: it contains 0
or has the other sign. *Inconclusive*: it contains 0, and its half-width exceeds the paper's difference. Differences are
taken seed by seed (runs of one seed share initial parameters, random start steps and reward noise); intervals are
Student's t at 95 %. {about_seeds}

Raw data: `counts.csv` (per seed), `curves.csv` (over time).
"""


STUDY = Study(
    "nchain-counts", "total count of optimal actions over time, four agents", main_cells, analyse, load=load_result
)
