"""What the studies that train on Atari share: their choices, their runs, and the general report of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tremble.atari.protocols import find_protocol
from tremble.report import tables
from tremble.report.curves import load_run
from tremble.report.figures import name_of
from tremble.report.statistics import SUPPORT, Interval, verdict
from tremble.report.sweep_report import write_report
from tremble.studies.atari.plan import Plan, cells_of, plan_of
from tremble.studies.kit import Options, Results, Study
from tremble.studies.parts import difference, over_seeds, seed_count
from tremble.sweeps.finished_run import FinishedRun
from tremble.sweeps.folder import SweepFolder

PUBLISHED_FRAMES = 50_000_000
"""Length of the published runs of most tables."""


@dataclass(frozen=True)
class AtariRun:
    """Scores of whole games in the evaluations of one run."""

    run: FinishedRun

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.run.seed

    @cached_property
    def frames(self) -> np.ndarray:
        """Frames at each evaluation; where the repeat of an action is random, counted at its longest."""
        return self.run.evaluated_at * find_protocol(str(self.run.spec.protocol)).frame_skip_max

    @cached_property
    def means(self) -> np.ndarray:
        """Mean score of each."""
        return self.run.evaluated_means

    @property
    def best(self) -> float:
        """Highest value of the curve, as papers report it."""
        return float(self.means.max())

    @property
    def last(self) -> float:
        """Its last value."""
        return float(self.means[-1])

    @property
    def height(self) -> float:
        """Its mean height."""
        return area(self.frames, self.means)

    @property
    def fresh(self) -> float:
        """Mean score after training, in games that start from other seeds."""
        return self.run.final.mean


def area(frames: np.ndarray, values: np.ndarray) -> float:
    """Mean height of a curve: the area under it, by the trapezoid rule, over its length."""
    if len(frames) < 2:
        return float(values[0])
    return float(np.trapezoid(values, frames) / (frames[-1] - frames[0]))


@dataclass(frozen=True)
class AtariRuns:
    """The finished runs of a study, for its report."""

    plan: Plan
    results: Results
    options: Options

    def of(self, game: str, agent: str) -> list[AtariRun]:
        """The runs of an agent on a game, one for each seed."""
        return self.results[f"{game} | {agent}"]

    def curves(self) -> pd.DataFrame:
        """All evaluations in the form of published curves (`report.curves`)."""
        return pd.concat([load_run(run.run.directory) for runs in self.results.values() for run in runs])


def atari_study(
    name: str,
    about: str,
    report: Callable[[AtariRuns], str],
    agents: Sequence[str],
    *,
    title: str,
    games: Sequence[str],
    games_fixed: bool = False,
    protocol: str = "paper",
    frames: int = 10_000_000,
    published_frames: int = PUBLISHED_FRAMES,
    **further: Any,
) -> Study:
    """A study that trains on Atari, with the default values of its choices; ``further`` are choices of its own.

    Its report has the experimental conditions, what ``report`` returns, the scores, and the general report of a sweep.
    """
    choices: dict[str, Any] = {"protocol": protocol, "agents": tuple(agents), "frames": frames}
    choices |= {"episodes": 0, "memory_size": 0}  # of an evaluation, and of replay; 0: the protocol's

    def planned(options: Options) -> Plan:
        return plan_of(study, options, games if games_fixed else ())

    def analyse(results: Results, options: Options) -> str:
        runs = AtariRuns(planned(options), results, options)
        runs.curves().round({"value": 4}).to_csv(options.out / "curves.csv", index=False, lineterminator="\n")
        own = report(runs)
        write_report([SweepFolder(options.out, options.store).data(study.sweep(options))], options.out)
        general = (options.out / "report.md").read_text(encoding="utf-8").partition("\n")[2]
        return f"# {title}\n\n{conditions(runs, published_frames)}\n\n{own}\n{score_table(runs)}{general}"

    study = Study(
        name,
        about,
        lambda options: cells_of(planned(options)),
        analyse,
        seeds=3,
        quick_seeds=1,
        steps=frames // 4,
        quick_steps=2_000,
        load=AtariRun,
        choices=({} if games_fixed else {"games": tuple(games)}) | choices | further,
        metric="best_evaluation",
        measured=True,
        partial=True,
    )
    return study


def text(interval: Interval) -> str:
    """With decimals for small scores."""
    return interval.text(2 if abs(interval.estimate) < 100 else 0) if interval.n else "–"


def millions(frames: float) -> str:
    """``12.5M``, or ``8,000`` for short runs."""
    return f"{frames / 1e6:g}M" if frames >= 100_000 else f"{frames:,.0f}"


def lead(first: Sequence[Any], second: Sequence[Any], name: str, *, quick: bool) -> str:
    """Difference of a number of two agents' runs, with its verdict."""
    interval = difference(first, second, name)
    return f"{text(interval)}: {SUPPORT[verdict(interval, quick=quick)]}" if interval.n else "–"


def score_table(runs: AtariRuns) -> str:
    """Best, last and mean height of every agent on every game, and fresh games."""
    rows = []
    for label, game, agent in runs.plan.labels():
        found = runs.results[label]
        scores = [text(over_seeds(found, name)) for name in ("best", "last", "height", "fresh")]
        rows.append([game, name_of(agent), len(found), *scores])
    header = ["game", "agent", "seeds", "best [95 %]", "last [95 %]", "mean height [95 %]", "fresh games [95 %]"]
    return f"""## Game by game

*Best* is the highest value of a run's curve, as papers report it, *last* its last, *mean height* the area under it over its length, and *fresh games* are
those after training; means over seeds.

{tables.markdown(header, rows, 2)}
Raw data: `curves.csv` (every evaluation), `scores.csv` (one row a run).
"""


def conditions(runs: AtariRuns, published_frames: int) -> str:
    """The experimental conditions that the general report does not state, as markdown."""
    plan, rules = runs.plan, runs.plan.protocol
    same = " too." if plan.frames == published_frames else ", another length, so they cannot be compared directly."
    lines = [
        f"Protocol `{rules.name}`: {rules.about}. **Our runs are {millions(plan.frames)} frames ({plan.steps:,} steps of the agent) long**; "
        f"published numbers are at {millions(published_frames)}{same} {seed_count(runs.results)} seeds a cell from seed 0.",
        f"Evaluations act with ε = {rules.evaluate_epsilon:g} and count game scores. Those of a seed start their games with the same seeds; *fresh games* have others.",
    ]
    if plan.episodes:
        lines.append(
            f"An evaluation plays {plan.episodes} whole games; the protocol's lasts {rules.evaluate_steps:,} steps, so the best of ours is a maximum of noisier numbers."
        )
    if plan.frames < rules.run_frames and not plan.quick:
        lines.append(
            f"Exploration schedules are those of runs of {millions(rules.run_frames)} frames; they are not shortened with the run."
        )
    if plan.memory_size:
        lines.append(
            f"**Replay holds {plan.memory_size:,} transitions, not the protocol's {rules.replay_capacity:,}.**"
        )
    if plan.quick:
        lines.append("Quick version: one game, 16 quantiles, a small memory, games truncated after 500 steps.")
    if absent := sum(not found for found in runs.results.values()):
        lines.append(f"**{absent} of {len(runs.results)} cells have no run yet**; repeat the command to continue.")
    return "\n\n".join(lines)
