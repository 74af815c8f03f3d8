"""Which of the paper's orderings hold under other readings of what it leaves open."""

from __future__ import annotations

from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import Interval, Verdict, verdict
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import COLUMNS, NChainResult, count_interval, load_result
from tremble.studies.nchain.settings import AGENTS, CLAIMS, minus, published
from tremble.studies.parts import difference, seed_count, write_runs
from tremble.sweep_records import Cell

READINGS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, {}, AGENTS),
    "reward on entering": ({}, {"reward_on": "enter"}, AGENTS),
    "width 128": ({"widths": [128, 128]}, {}, AGENTS),
    "Adam epsilon 1e-8": ({"adam_epsilon": 1e-8}, {}, AGENTS),
    "LeCun initialisation": ({"initialisation": "lecun_normal"}, {}, AGENTS),
    "thermometer encoding": ({}, {"encoding": "thermometer"}, AGENTS),
    "t counts updates": ({"t_unit": "updates"}, {}, AGENTS[1:]),
    "behaviour only": ({"criterion_for": "behaviour"}, {}, AGENTS[1:]),
    "target only": ({"criterion_for": "target"}, {}, AGENTS[1:]),
    "held for an episode": ({"resample_noise_every": "episode"}, {}, AGENTS[2:]),
}
"""Alternative readings of the paper, one factor at a time: agent options, environment options, affected agents."""

CONTROLS: dict[str, dict[str, Any]] = {
    "greedy (no exploration)": {"epsilon_start": 0.0, "epsilon_end": 0.0},
    "epsilon to 0.05": {"epsilon_end": 0.05},
    "epsilon over 10k steps": {"epsilon_decay_steps": 10_000.0},
}
"""QR-DQN with other amounts of exploration; all are reported."""

MARKED: dict[Verdict, tuple[str, str]] = {
    "reproduced": ("**{}**", "#2a6f97"),
    "not reproduced": ("{}", "#d1495b"),
    "inconclusive": ("({})", "#9ca3af"),
    "no verdict": ("{}", "#9ca3af"),
}
"""Form of a number in a table, and colour in the figure."""
KINDS = tuple(kind for kind in MARKED if kind != "no verdict")
AS_DEFAULT = "as default"


Differences = dict[str, dict[tuple[str, str], tuple[Interval, Verdict]]]
"""By reading and claim: our difference of two agents, and the verdict on the paper's."""


def cells(options: Options) -> list[Cell]:
    """All readings, then the controls."""
    found = [
        Cell(f"{reading} | {agent}", agent, agent_options=agent_options, env_options=env_options)
        for reading, (agent_options, env_options, agents) in READINGS.items()
        for agent in agents
    ]
    return found + [Cell(f"control: {name} | qrdqn", "qrdqn", agent_options=x) for name, x in CONTROLS.items()]


def runs_of(results: Results, reading: str, agent: str) -> list[NChainResult]:
    """Runs under a reading; the default ones for an agent that it does not affect."""
    return results.get(f"{reading} | {agent}", results[f"default | {agent}"])


def compare(results: Results, options: Options) -> Differences:
    """Every claim under every reading that affects one of its agents."""
    found: Differences = {reading: {} for reading in READINGS}
    for reading, (_, _, affected) in READINGS.items():
        for first, second in CLAIMS:
            if first in affected or second in affected:
                ours = difference(runs_of(results, reading, first), runs_of(results, reading, second), "count")
                said = verdict(ours, published(first) - published(second), quick=options.quick)
                found[reading][first, second] = ours, said
    return found


def draw(differences: Differences, options: Options) -> None:
    """For every claim, the difference and its interval under each reading, the paper's value as a line."""
    figure, axes = figures.new(1, len(CLAIMS), 15, 4.2, sharey=True)
    for axis, (first, second) in zip(axes, CLAIMS, strict=True):
        axis.axvline(0, color="#111111", linewidth=1)
        axis.axvline(published(first) - published(second), color="#111111", linewidth=1, linestyle=":")
        for row, claims in enumerate(differences.values()):
            if (first, second) not in claims:
                continue
            ours, said = claims[first, second]
            _, colour = MARKED[said]
            if np.isfinite(ours.half_width):
                axis.plot([ours.low, ours.high], [row, row], color=colour, linewidth=2.2)
            axis.plot(ours.estimate, row, "o", color=colour, markersize=6)
        axis.set(title=minus(first, second), xlim=(-16_000, 16_000))
        axis.set_yticks(range(len(differences)), differences)
        figures.thousands(axis.xaxis)
    axes[0].invert_yaxis()
    figures.save(figure, options.out / "readings")


def count_table(results: Results, steps: int) -> str:
    """Mean count of every agent under every reading."""

    def cell(reading: str, agent: str) -> str:
        runs = results.get(f"{reading} | {agent}")
        return AS_DEFAULT if runs is None else count_interval(runs, steps).text()

    rows = [[reading, *(cell(reading, agent) for agent in AGENTS)] for reading in READINGS]
    return tables.markdown(["reading", *(figures.NAMES[a] for a in AGENTS)], rows)


def verdict_table(differences: Differences) -> str:
    """For every claim, how many readings reproduce it."""
    rows = []
    for first, second in CLAIMS:
        said = [claims[first, second][1] for claims in differences.values() if (first, second) in claims]
        tally, theirs = [said.count(kind) for kind in KINDS], published(first) - published(second)
        rows.append([minus(first, second), f"{theirs:+,}", *tally, differences["default"][first, second][1]])
    return tables.markdown(["difference", "paper", *KINDS, "default reading"], rows)


def difference_table(differences: Differences) -> str:
    """Every claim under every reading."""
    rows = []
    for reading, claims in differences.items():
        shown = {claim: MARKED[said][0].format(ours.text()) for claim, (ours, said) in claims.items()}
        rows.append([reading, *[shown.get(claim, AS_DEFAULT) for claim in CLAIMS]])
    return tables.markdown(["reading", *[minus(*claim) for claim in CLAIMS]], rows)


def control_table(results: Results, steps: int) -> str:
    """QR-DQN with other amounts of exploration, and PQR's difference from each."""
    controls = {"the paper's: to 0.01 over 2.5k": results["default | qrdqn"]}
    controls |= {name: results[f"control: {name} | qrdqn"] for name in CONTROLS}
    pqr = results["default | pqr"]
    rows = [
        [name, count_interval(runs, steps).text(), difference(pqr, runs, "count").text()]
        for name, runs in controls.items()
    ]
    return tables.markdown(["epsilon", "QR-DQN's count", "PQR (default) − this"], rows)


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    differences = compare(results, options)
    draw(differences, options)
    write_runs(options.out / "readings.csv", results, COLUMNS)
    return f"""# Which orderings hold under other readings of the paper

{options.steps:,} steps; {seed_count(results)} seeds in each cell (of {options.seeds} asked for); one factor changed at a time.

![readings](readings.png)

Each panel is a difference of counts between two agents; dots are our means, bars 95 % intervals, the dotted line is the paper's
difference. Blue: reproduced. Red: not reproduced. Grey: inconclusive.

## Counts

{count_table(results, options.steps)}
## Verdicts over all readings

{verdict_table(differences)}
## Differences

{difference_table(differences)}
Bold: reproduced. Plain: not reproduced. In brackets: inconclusive.

## Controls: QR-DQN with other amounts of epsilon-greedy exploration

{control_table(results, options.steps)}
Raw data: `readings.csv`.
"""


STUDY = Study(
    "nchain-readings",
    "which orderings hold under other readings of what the paper leaves open",
    cells,
    analyse,
    seeds=30,
    load=load_result,
)
