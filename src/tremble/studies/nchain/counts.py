"""How often the optimal action is taken: the paper's figure of total counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval, mean_interval, verdict
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import COLUMNS, count_by_seed, count_interval, load_result
from tremble.studies.nchain.settings import AGENTS, CLAIMS, MAIN_PAIR, main_cells, published


def minus(first: str, second: str) -> str:
    """Name of a difference of two agents."""
    return f"{figures.NAMES[first]} − {figures.NAMES[second]}"


def verdict_table(counts: Mapping[str, Mapping[int, float]], pairs: Sequence[tuple[int, int]], options: Options) -> str:
    """A row per claim: the paper's difference, averaged over pairs of means, ours with its interval, and the verdict."""
    rows = []
    for first, second in CLAIMS:
        theirs = float(np.mean([published(first, pair) - published(second, pair) for pair in pairs]))
        ours = difference_interval(counts[first], counts[second])
        rows.append(
            [minus(first, second), f"{theirs:+,.0f}", ours.text(), f"**{verdict(ours, theirs, quick=options.quick)}**"]
        )
    return tables.markdown(["difference", "paper", "ours [95 %]", "verdict"], rows)


def count_table(results: Results) -> str:
    """Counts of the paper and of our runs, by both definitions of an optimal action."""
    rows = []
    for agent in AGENTS:
        runs = results[agent]
        steps, counts = int(runs[0].steps[-1]), [run.count for run in runs]
        lefts = mean_interval([run.left_count for run in runs], between=(0, steps))
        cells = [f"{published(agent):,}", count_interval(runs, steps).text(), lefts.text()]
        rows.append([figures.NAMES[agent], *cells, f"{min(counts):,} … {max(counts):,}", len(runs)])
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
        if len(counts) > 1:
            ours = count_interval(outcomes, int(steps[-1]))
            bar = [[error] for error in ours.errors]
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
    runs = [(agent, run) for agent in results for run in results[agent]]
    tables.write_csv(options.out / "counts.csv", ["agent", *COLUMNS], [[agent, *run.row()] for agent, run in runs])
    tables.write_csv(
        options.out / "curves.csv",
        ["agent", "seed", "step", "optimal_count", "left_count"],
        [[agent, run.seed, *row] for agent, run in runs for row in zip(run.steps, run.optimal, run.left, strict=True)],
    )


BIMODAL = """The distribution over seeds is wide and bimodal (an agent finds the left end early
or very late), so means of 4 seeds, as published, differ by thousands between sets of seeds."""


def analyse(
    results: Results, options: Options, settings: str = "the paper's settings", about_seeds: str = BIMODAL
) -> str:
    """Figures, data and report."""
    write_data(results, options)
    draw(results, options)
    counts = {agent: count_by_seed(results[agent]) for agent in AGENTS}
    return f"""# Total count of optimal actions on N-Chain

{options.steps:,} steps, seeds 0 to {options.seeds - 1}, {settings}, right end (5, 13).

![counts](counts.png)

{count_table(results)}
An action counts as optimal if it is `left` in s1, s2 or s3, or anything in s0, where every action only collects the
reward. The paper may have counted `left` alone; both are given. The black bars are the paper's numbers, from its
appendix table (4 seeds); its figure has 10 seeds and no numbers.

## Verdicts

{verdict_table(counts, [MAIN_PAIR], options)}
*Reproduced*: the same sign as the paper, and our interval of the difference excludes 0. *Not reproduced*: it contains 0
or has the other sign. *Inconclusive*: it contains 0, and its half-width exceeds the paper's difference. Differences are
taken seed by seed (runs of one seed share initial parameters, random start steps and reward noise); intervals are
Student's t at 95 %. {about_seeds}

Raw data: `counts.csv` (per seed), `curves.csv` (over time).
"""


STUDY = Study(
    "nchain-counts", "total count of optimal actions over time, four agents", main_cells, analyse, load=load_result
)
