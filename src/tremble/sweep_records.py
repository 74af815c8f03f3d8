"""What the files of a sweep hold: its cells, the outcome of each run, and where they lie.

DIR/sweep.json                        the plan: cells, seeds, search
DIR/runs/CELL/seed-0/                 a run directory, as `tremble train` writes it
DIR/runs/CELL/seed-0.json             its outcome, once the run needs no more work
DIR/runs/CELL/seed-0.tries.jsonl      a line for each worker that took it up
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from tremble import escape
from tremble.records import CheckpointError, read_text

State = Literal["finished", "stopped", "failed", "diverged", "timed out", "running", "waiting"]
"""*Stopped*: its callback ended the run early, which is a result like *finished*."""
RESULTS: tuple[State, ...] = ("finished", "stopped")
"""States of runs whose numbers count."""
FAILURES: tuple[State, ...] = ("failed", "diverged", "timed out")
"""States of runs that ended without a result; `Outcome.cause` says why."""
Phase = Literal["test", "tuning"]
"""Runs of a search are *tuning* runs; its winner is trained again with test seeds."""


@dataclass(frozen=True)
class Cell:
    """One setting of a sweep, trained with several seeds."""

    label: str
    agent: str
    env: str = "nchain"
    agent_options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    hyperparameters: str | None = None
    run_options: dict[str, Any] = field(default_factory=dict)
    """Further fields of `RunSpec`: ``evaluate_every``, ``n_envs``, ..."""
    steps: int | None = None
    """Length of its runs; None is the length of the sweep."""


@dataclass(frozen=True)
class Outcome:
    """How a run of a sweep ended."""

    state: State
    cause: str
    """Why it failed; empty where it did not."""
    step: int
    """Transitions made."""
    seconds: float
    """Wall-clock time of the last try."""
    processor_seconds: float
    """Processor time of the last try, compiling included."""
    host: str
    worker: str
    versions: dict[str, str | None]
    revision: str | None
    """Git revision of the directory that the worker was started in; ``(changed)`` if files differ from it."""
    tries: int
    """Workers that took the run up, one after the other."""

    @property
    def counts(self) -> bool:
        """Whether the run has a result."""
        return self.state in RESULTS


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: its cell and seed, where it is, and how far it is."""

    cell: Cell
    seed: int
    directory: Path
    """The run directory."""
    phase: Phase = "test"
    outcome: Outcome | None = None
    running: bool = False
    """Whether somebody trains it now."""

    @property
    def state(self) -> State:
        """Its outcome's, or whether it is running or waiting."""
        if self.outcome is not None:
            return self.outcome.state
        return "running" if self.running else "waiting"

    @property
    def outcome_file(self) -> Path:
        """Where its outcome is written."""
        return outcome_file(self.directory)


@dataclass(frozen=True)
class Trial:
    """One setting that a search tried, for one agent on one environment."""

    agent: str
    env: str
    number: int
    settings: dict[str, Any]
    label: str
    """The cell of its runs."""
    score: float | None = None
    """Mean over the tuning seeds; None as long as runs are missing, and where one of them failed."""
    state: Literal["open", "scored", "failed"] = "open"
    won: bool = False


@dataclass(frozen=True)
class SweepData:
    """A sweep as reports see it."""

    name: str
    directory: Path
    metric: str
    """How a run is scored (`tremble.report.run_score`)."""
    runs: list[SweepRun]
    """Test runs first, then those of the search."""
    trials: list[Trial] = field(default_factory=list)
    search: str = ""
    """How the search went about, in words; empty if there was none."""
    commands: list[str] = field(default_factory=list)
    """What to type to make the sweep again."""


def outcome_file(directory: Path) -> Path:
    """The outcome of the run in a directory: ``seed-0.json`` beside ``seed-0/``."""
    return directory.with_name(f"{directory.name}.json")


def read_outcome(path: Path) -> Outcome | None:
    """The outcome in a file; None if there is none yet."""
    try:
        text = read_text(path)
    except CheckpointError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    try:
        outcome = msgspec.json.decode(text, type=Outcome)  # a sweep reads thousands
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CheckpointError(f"{escape.plain(path)} is not as this version writes it: {error}") from error
    if outcome.state not in (*RESULTS, *FAILURES):
        raise CheckpointError(f"{escape.plain(path)} is no outcome of a run: its state is {outcome.state!r}")
    return outcome


def as_text(record: Any) -> str:
    """A record as a file holds it."""
    return json.dumps(record, indent=2, allow_nan=False) + "\n"
