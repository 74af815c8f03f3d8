"""The result of a stored run, on any environment: what a study has without a loader of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tremble.training import checkpoint
from tremble.training.evaluation import Evaluation
from tremble.training.spec import RunSpec


@dataclass(frozen=True)
class StoredRun:
    """One run: its logs, and its evaluation after training.

    An environment with a table of observations that is trained inside XLA has the step log instead of evaluations,
    unless the cell asks for some (``run_options={"evaluate_every": ...}``).
    """

    seed: int
    spec: RunSpec
    run: str
    """Name of its directory in the store, a digest of its settings."""
    rows: list[dict[str, Any]]
    """The metrics, a row every ``record_every`` steps."""
    evaluations: list[dict[str, Any]]
    """Those during training: step, mean, returns, ..."""
    episodes: list[dict[str, Any]]
    """Training episodes: step at the end, return, length."""
    final: Evaluation | None
    """100 episodes by the last parameters, on seeds that training did not see; on Atari, the protocol's evaluation."""
    best: Evaluation | None
    """The same episodes by the parameters of the best evaluation; `final` where these are the last ones."""
    log: dict[str, np.ndarray]
    """Inside XLA, one entry for each step: action, reward, done, optimal, ..."""
    snapshots: dict[str, np.ndarray]
    """Inside XLA, one entry for each row: atoms[actions, n] and scores[actions] at a start state."""


def load_stored(path: Path, seed: int, spec: RunSpec) -> StoredRun:
    """Read what a worker stored."""
    contents = checkpoint.read(path)
    meta, final, best = contents.meta, contents.group("final"), contents.group("best")
    return StoredRun(
        seed,
        spec,
        path.parent.name,
        meta["rows"],
        meta.get("evaluations", []),
        meta.get("episodes", []),
        Evaluation(**final) if final else None,
        Evaluation(**(best or final)) if final else None,
        contents.group("log"),
        contents.group("snapshots"),
    )
