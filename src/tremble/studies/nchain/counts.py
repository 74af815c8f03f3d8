"""How often the optimal action is taken: the paper's figure of total counts."""

from __future__ import annotations

import numpy as np

from tremble.report import figures, tables
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import COLUMNS, count_interval, load_result
from tremble.studies.nchain.settings import AGENTS, MAIN_PAIR, main_cells, published, verdict_table
from tremble.studies.parts import by_seed, draw_seeds, error_bar, over_seeds, values, write_curves, write_runs


def count_table(results: Results) -> str:
    """Counts of the paper and of our runs, by both definitions of an optimal action."""
    rows = []
    for agent in AGENTS:
        runs, steps = results[agent], int(results[agent][0].steps[-1])
        counts, lefts = values(runs, "count"), over_seeds(runs, "left_count", between=(0, steps))
        cells = [f"{published(agent):,}", count_interval(runs, steps).text(), lefts.text()]
        rows.append([figures.NAMES[agent], *cells, f"{min(counts):,} … {max(counts):,}", len(runs)])
    header = ["agent", "paper (4 seeds)", "optimal actions [95 %]", "`left` alone [95 %]", "single seeds", "seeds"]
    return tables.markdown(header, rows)


def draw(results: Results, options: Options) -> None:
    """Counts over time for every seed, and final counts by agent."""
    figure, (over_time, final) = figures.new(1, 2, 10.5, 4.2, width_ratios=[3, 2])
    for place, agent in enumerate(AGENTS):
        colour, runs = figures.COLOURS[agent], results[agent]
        draw_seeds(over_time, runs[0].steps, values(runs, "optimal"), colour, label=figures.NAMES[agent])
        spread = np.linspace(-0.16, 0.16, len(runs)) if len(runs) > 1 else np.zeros(1)
        final.scatter(place + spread, sorted(values(runs, "count")), s=16, color=colour, alpha=0.75, linewidths=0)
        error_bar(final, count_interval(runs, int(runs[0].steps[-1])), place + 0.28, colour)
        final.plot([place - 0.35, place + 0.35], [published(agent)] * 2, color="#111111", linewidth=1.6)
    end = results[AGENTS[0]][0].steps[-1]
    over_time.plot([0, end], [0, end], "--", color=figures.COLOURS["oracle"], linewidth=1.2, label="oracle")
    over_time.set(xlabel="environment steps", ylabel="optimal actions so far", title="Optimal actions over time")
    over_time.legend(loc="upper left")
    final.set(title="Final counts (black bar: the paper)", ylim=(0, None))
    final.set_xticks(range(len(AGENTS)), [figures.NAMES[a] for a in AGENTS])
    for axis in (over_time.yaxis, final.yaxis):
        figures.thousands(axis)
    figures.save(figure, options.out / "counts")


BIMODAL = """The distribution over seeds is wide and bimodal (an agent finds the left end early
or very late), so means of 4 seeds, as published, differ by thousands between sets of seeds."""


def analyse(
    results: Results, options: Options, settings: str = "the paper's settings", about_seeds: str = BIMODAL
) -> str:
    """Figures, data and report."""
    write_runs(options.out / "counts.csv", results, COLUMNS, cell=["agent"])
    columns = {"optimal_count": "optimal", "left_count": "left"}
    write_curves(options.out / "curves.csv", results, "steps", columns, cell=["agent"])
    draw(results, options)
    counts = {agent: by_seed(results[agent], "count") for agent in AGENTS}
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
