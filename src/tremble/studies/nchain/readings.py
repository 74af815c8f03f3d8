"""Which of the paper's orderings hold under other readings of what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import Interval, difference_interval, mean_interval, verdict
from tremble.studies.kit import Options, Results, Study, seed_count
from tremble.studies.nchain.counts import CLAIMS, minus, published
from tremble.studies.nchain.result import load_result
from tremble.studies.nchain.settings import AGENTS, CONTROLS, READINGS, readings_cells
from tremble.training.spec import RunSpec

MARKED = {"reproduced": "**{}**", "not reproduced": "{}", "inconclusive": "({})"}
AS_DEFAULT = "as default"
DATA = "readings.csv"


@dataclass(frozen=True)
class ReadingResult:
    """Counts and final distance of one run."""

    seed: int
    run: str
    """Name of its directory in the store."""
    count: int
    """Optimal actions."""
    left_count: int
    w2_left: float
    """Final W2 between the learned return of (s2, left) and the truth."""


def load(path: Path, seed: int, spec: RunSpec) -> ReadingResult:
    """Read a stored run."""
    outcome = load_result(path, seed, spec)
    return ReadingResult(seed, path.parent.name, outcome.count, outcome.left_count, outcome.w2_left)


def recall(directory: Path) -> dict[tuple[str, int], ReadingResult]:
    """Read what `analyse` wrote."""
    return {
        (row["cell"], int(row["seed"])): ReadingResult(
            int(row["seed"]), row["run"], int(row["optimal_count"]), int(row["left_count"]), float(row["w2_left"])
        )
        for row in tables.read_csv(directory / DATA)
    }


def counts(results: Results, reading: str, agent: str) -> dict[int, int]:
    """Final count by seed under a reading; the default runs for an agent that it does not affect."""
    label = f"{reading} | {agent}"
    return {o.seed: o.count for o in results[label if label in results else f"default | {agent}"]}


def compare(results: Results, reading: str, first: str, second: str) -> tuple[Interval, str]:
    """Difference of two agents under a reading, and the verdict on the paper's difference."""
    ours = difference_interval(counts(results, reading, first), counts(results, reading, second))
    return ours, verdict(ours, published(first) - published(second))


def matters(reading: str, *agents: str) -> bool:
    """Whether a reading affects one of the agents."""
    return any(agent in READINGS[reading][2] for agent in agents)


def draw(results: Results, options: Options) -> None:
    """For every claim, the difference and its interval under each reading, the paper's value as a line."""
    readings = list(READINGS)
    figure, axes = figures.new(1, len(CLAIMS), 15, 4.2, sharey=True)
    for axis, (first, second) in zip(axes, CLAIMS, strict=True):
        theirs = published(first) - published(second)
        axis.axvline(0, color="#111111", linewidth=1)
        axis.axvline(theirs, color="#111111", linewidth=1, linestyle=":")
        for row, reading in enumerate(readings):
            if not matters(reading, first, second):
                continue
            ours, said = compare(results, reading, first, second)
            colour = {"reproduced": "#2a6f97", "not reproduced": "#d1495b", "inconclusive": "#9ca3af"}[said]
            if np.isfinite(ours.half_width):
                axis.plot([ours.low, ours.high], [row, row], color=colour, linewidth=2.2)
            axis.plot(ours.estimate, row, "o", color=colour, markersize=6)
        axis.set(title=minus(first, second), xlim=(-16_000, 16_000))
        axis.set_yticks(range(len(readings)), readings)
        axis.invert_yaxis() if axis is axes[0] else None
        figures.thousands(axis.xaxis)
    figures.save(figure, options.out / "readings")


def count_table(results: Results, steps: int) -> str:
    """Mean count of every agent under every reading."""
    rows = [
        [reading, *[_mean(counts(results, reading, a), steps) if matters(reading, a) else AS_DEFAULT for a in AGENTS]]
        for reading in READINGS
    ]
    return tables.markdown(["reading", *[figures.NAMES[a] for a in AGENTS]], rows)


def verdict_table(results: Results) -> str:
    """For every claim, how many readings reproduce it."""
    rows = []
    for first, second in CLAIMS:
        said = {r: compare(results, r, first, second)[1] for r in READINGS if matters(r, first, second)}
        tally = [sum(v == kind for v in said.values()) for kind in MARKED]
        rows.append([minus(first, second), f"{published(first) - published(second):+,}", *tally, said["default"]])
    return tables.markdown(["difference", "paper", *MARKED, "default reading"], rows)


def difference_table(results: Results) -> str:
    """Every claim under every reading."""
    rows = []
    for reading in READINGS:
        row = [reading]
        for first, second in CLAIMS:
            ours, said = compare(results, reading, first, second)
            row.append(MARKED[said].format(ours.text()) if matters(reading, first, second) else AS_DEFAULT)
        rows.append(row)
    return tables.markdown(["reading", *[minus(*claim) for claim in CLAIMS]], rows)


def control_table(results: Results, steps: int) -> str:
    """QR-DQN with other amounts of exploration, and PQR's difference from each."""
    pqr = counts(results, "default", "pqr")
    controls = {"the paper's: to 0.01 over 2.5k": counts(results, "default", "qrdqn")}
    controls |= {name: {o.seed: o.count for o in results[f"control: {name} | qrdqn"]} for name in CONTROLS}
    rows = [[name, _mean(values, steps), difference_interval(pqr, values).text()] for name, values in controls.items()]
    return tables.markdown(["epsilon", "QR-DQN's count", "PQR (default) − this"], rows)


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    draw(results, options)
    tables.write_csv(
        options.out / DATA,
        ["cell", "seed", "run", "optimal_count", "left_count", "w2_left"],
        [[c, o.seed, o.run, o.count, o.left_count, f"{o.w2_left:.5f}"] for c in results for o in results[c]],
    )
    return f"""# Which orderings hold under other readings of the paper

{options.steps:,} steps; {seed_count(results)} seeds in each cell (of {options.seeds} asked for); one factor changed at a time.

![readings](readings.png)

Each panel is a difference of counts between two agents; dots are our means, bars 95 % intervals, the dotted line is the paper's
difference. Blue: reproduced. Red: not reproduced. Grey: inconclusive.

## Counts

{count_table(results, options.steps)}
## Verdicts over all readings

{verdict_table(results)}
## Differences

{difference_table(results)}
Bold: reproduced. Plain: not reproduced. In brackets: inconclusive.

## Controls: QR-DQN with other amounts of epsilon-greedy exploration

{control_table(results, options.steps)}
Raw data: `{DATA}`; `tremble study nchain-readings --reuse-results` of this directory goes on from them.
"""


def _mean(by_seed: dict[int, int], steps: int) -> str:
    return mean_interval([*by_seed.values()], between=(0, steps)).text()


STUDY = Study(
    "nchain-readings",
    "which orderings hold under other readings of what the paper leaves open",
    readings_cells,
    analyse,
    seeds=30,
    load=load,
    reuse_results=recall,
)
