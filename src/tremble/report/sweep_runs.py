"""Runs of sweeps as reports see them: one `Entry` for each, with its score, or why it has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tremble import escape
from tremble.records import CheckpointError, EpisodeRow, TimingRow
from tremble.report.quick_logs import Evaluation, read_log
from tremble.report.run_curves import RunCurve
from tremble.report.run_reader import read_settings
from tremble.report.run_score import resolved_metric, score
from tremble.settings import SettingsError
from tremble.sweep_records import SweepData, SweepRun

PRECEDENCE = ("final", "evaluations", "optimal_share", "training")
"""What ``auto`` stands for: the first of these that any run of an environment has, so that all are scored alike."""


@dataclass(frozen=True)
class Entry:
    """A run, what was read of it, and its score."""

    run: SweepRun
    source: int
    """Number of the directory that it is from."""
    spec: dict[str, Any] | None = None
    """The fields of `RunSpec`; None if the run has not begun or cannot be read."""
    metric: str = ""
    score: float | None = None
    problem: str = ""
    """Why there is no score, in words; empty where there is one."""

    @property
    def state(self) -> str:
        """The state of the run, or what is wrong with a finished one."""
        if self.run.outcome is not None and self.run.outcome.counts and self.score is None:
            return "without a score"
        return self.run.state

    @property
    def diverged(self) -> bool:
        """Whether it was trained, but ended in numbers that are not finite."""
        return self.state == "diverged" or self.problem == NO_NUMBER


NO_NUMBER = "its score is missing or not finite"


def read_entries(sweeps: Sequence[SweepData]) -> list[Entry]:
    """All test runs in the order of the sweeps, scored by their metric."""
    found = [_begin(run, number) for number, sweep in enumerate(sweeps) for run in sweep.runs if run.phase == "test"]
    metrics: dict[str, str] = {}
    for env in dict.fromkeys(entry.run.cell.env for entry in found):
        here = [entry for entry in found if entry.run.cell.env == env]
        metrics[env] = _metric(here, sweeps[here[0].source].metric)
    return [_scored(entry, metrics[entry.run.cell.env]) for entry in found]


def _begin(run: SweepRun, source: int) -> Entry:
    """A run with its settings, if it has written them."""
    try:
        spec, _ = read_settings(run.directory)
    except CheckpointError as error:
        return Entry(run, source, problem=f"cannot be read: {escape.plain(error)}")
    except SettingsError:  # not begun
        outcome = run.outcome
        lost = "its directory is missing" if outcome is not None and outcome.counts else ""
        return Entry(run, source, problem=lost)
    return Entry(run, source, spec, problem=_other_run(run, spec))


def _other_run(run: SweepRun, spec: Mapping[str, Any]) -> str:
    """What is wrong if a directory holds another run than the one that belongs there; empty if nothing is."""
    if (spec["agent"], spec["seed"]) == (run.cell.agent, run.seed) and (
        spec["env"] == run.cell.env or "from_python" in spec
    ):
        return ""
    return f"its directory holds another run: {spec['agent']} on {spec['env']}, seed {spec['seed']}"


def _metric(entries: Iterable[Entry], metric: str) -> str:
    """What a metric stands for on one environment."""
    if metric != "auto":
        return metric
    found = set()
    for entry in entries:
        if entry.spec is not None and entry.run.outcome is not None and entry.run.outcome.counts:
            try:
                found.add(resolved_metric(entry.run.directory))
            except CheckpointError:
                continue  # named where it is scored
    return next((name for name in PRECEDENCE if name in found), "training")


def _scored(entry: Entry, metric: str) -> Entry:
    """The same with its score, or the reason why there is none."""
    outcome, value, problem = entry.run.outcome, None, entry.problem
    if not problem and outcome is None:
        problem = "not finished"
    elif not problem and outcome is not None and not outcome.counts:
        problem = outcome.cause or "no cause is recorded"
    elif not problem:
        try:
            value = score(entry.run.directory, metric)
            problem = NO_NUMBER if value is None else ""
        except CheckpointError as error:
            problem = f"cannot be read: {escape.plain(error)}"
    return Entry(entry.run, entry.source, entry.spec, metric, value, problem)


def read_curve(entry: Entry) -> RunCurve | None:
    """Evaluations of a run, or its training episodes where it has none; None where it has neither."""
    if entry.spec is None:
        return None
    directory: Path = entry.run.directory
    rows: list[Evaluation] = read_log(directory, "evaluations", Evaluation)
    evaluations = [(row.step, [_number(x) for x in row.returns]) for row in rows]
    episodes: list[tuple[int, float]] = []
    if not evaluations:
        trained: list[EpisodeRow] = read_log(directory, "episodes", EpisodeRow)
        episodes = [(row.step, _number(row.total)) for row in trained]
    if not evaluations and not episodes:
        return None
    last = max(step for step, _ in [*evaluations, *episodes])
    return RunCurve(entry.spec, {}, {}, last, None, evaluations, episodes)


def clock(entry: Entry) -> tuple[float, float] | None:
    """Seconds of the clock and of the processor; None where nothing was recorded.

    Of the last try, where several workers took the run up. A run that no sweep started has only its own clock.
    """
    outcome = entry.run.outcome
    if outcome is not None and (outcome.seconds or outcome.processor_seconds):
        return outcome.seconds, outcome.processor_seconds
    rows: list[TimingRow] = read_log(entry.run.directory, "timing", TimingRow)
    return (rows[-1].seconds, float("nan")) if rows else None


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
