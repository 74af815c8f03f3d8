"""Which of the paper's orderings survive when what it leaves unsaid is read differently."""

from __future__ import annotations

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval, mean_interval, verdict
from tremble.studies.nchain_counts import CLAIMS, published
from tremble.studies.nchain_settings import AGENTS, CONTROLS, READINGS, readings_cells
from tremble.studies.runner import Options, Results, Study


def counts(results: Results, reading: str, agent: str) -> dict[int, int]:
    """Final count by seed under a reading. An agent a reading cannot matter to keeps its default runs."""
    label = f"{reading} | {agent}"
    return {o.seed: o.count for o in results[label if label in results else f"default | {agent}"]}


def draw(results: Results, options: Options) -> None:
    """For every claim, the difference and its interval under each reading, the paper's value as a line."""
    readings = list(READINGS)
    figure, axes = figures.new(1, len(CLAIMS), 15, 4.2, sharey=True)
    for axis, (first, second) in zip(axes, CLAIMS, strict=True):
        theirs = published(first) - published(second)
        axis.axvline(0, color="#111111", linewidth=1)
        axis.axvline(theirs, color="#111111", linewidth=1, linestyle=":")
        for row, reading in enumerate(readings):
            ours = difference_interval(counts(results, reading, first), counts(results, reading, second))
            colour = {"reproduced": "#2a6f97", "not reproduced": "#d1495b", "inconclusive": "#9ca3af"}[
                verdict(theirs, ours)
            ]
            if np.isfinite(ours.half_width):
                axis.plot([ours.low, ours.high], [row, row], color=colour, linewidth=2.2)
            axis.plot(ours.estimate, row, "o", color=colour, markersize=6)
        axis.set(title=f"{figures.NAMES[first]} − {figures.NAMES[second]}", xlim=(-16_000, 16_000))
        axis.set_yticks(range(len(readings)), readings)
        axis.invert_yaxis() if axis is axes[0] else None
        figures.thousands(axis.xaxis)
    figures.save(figure, options.out / "readings")


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    draw(results, options)
    tables.write_csv(
        options.out / "readings.csv",
        ["cell", "seed", "optimal_count", "left_count", "w2_left"],
        [[c, o.seed, o.count, o.left_count, f"{o.w2_left:.5f}"] for c in results for o in results[c]],
    )
    seeds = sorted({len(outcomes) for outcomes in results.values()})
    have = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    count_rows = [
        [
            reading,
            *[
                mean_interval([*counts(results, reading, a).values()], between=(0, options.steps)).text()
                if a in agents
                else "as default"
                for a in AGENTS
            ],
        ]
        for reading, (_, _, agents) in READINGS.items()
    ]
    claim_rows = []
    for first, second in CLAIMS:
        theirs = published(first) - published(second)
        verdicts = {
            reading: verdict(
                theirs, difference_interval(counts(results, reading, first), counts(results, reading, second))
            )
            for reading, (_, _, agents) in READINGS.items()
            if first in agents or second in agents
        }
        tally = [sum(v == kind for v in verdicts.values()) for kind in ("reproduced", "not reproduced", "inconclusive")]
        name = f"{figures.NAMES[first]} − {figures.NAMES[second]}"
        claim_rows.append([name, f"{theirs:+,}", *tally, verdicts["default"]])
    control_rows = []
    for name in CONTROLS:
        values = {o.seed: o.count for o in results[f"control: {name} | qrdqn"]}
        against = difference_interval(counts(results, "default", "pqr"), values)
        control_rows.append(
            [name, mean_interval([*values.values()], between=(0, options.steps)).text(), against.text()]
        )
    control_rows.insert(
        0,
        [
            "the paper's: to 0.01 over 2.5k",
            mean_interval([*counts(results, "default", "qrdqn").values()], between=(0, options.steps)).text(),
            difference_interval(counts(results, "default", "pqr"), counts(results, "default", "qrdqn")).text(),
        ],
    )
    return f"""# Which orderings survive other readings of the paper

{options.steps:,} steps; {have} seeds in each cell (of {options.seeds} asked for); one factor changed at a time.

![readings](readings.png)

Each panel is a difference of counts between two agents; dots are our means, bars 95 % intervals, the dotted line is the paper's
difference. Blue: reproduced. Red: not reproduced. Grey: inconclusive.

## Counts

{tables.markdown(["reading", *[figures.NAMES[a] for a in AGENTS]], count_rows)}
## Verdicts over all readings

{tables.markdown(["difference", "paper", "reproduced", "not reproduced", "inconclusive", "default reading"], claim_rows)}
## Controls: QR-DQN with other amounts of epsilon-greedy exploration

{tables.markdown(["epsilon", "QR-DQN's count", "PQR (default) − this"], control_rows)}
Raw data: `readings.csv`.
"""


STUDY = Study(
    "nchain-readings",
    "which orderings survive other readings of what the paper leaves open",
    readings_cells,
    analyse,
    seeds=30,
)
