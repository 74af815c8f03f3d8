"""What a run leaves in memory: the trained agent and everything recorded on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tremble.training.callback import Stopped
from tremble.training.spec import RunSpec
from tremble.training.trained import TrainedAgent

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Run:
    """A run at its end: the trained agent and everything recorded on the way.

    `metrics`, `evaluations` and `episodes` are pandas tables of `rows`, `evaluation_rows` and `episode_rows`.
    """

    spec: RunSpec
    agent: TrainedAgent
    rows: list[dict[str, Any]]
    """One entry every ``record_every`` steps, as in ``metrics.jsonl``."""
    evaluation_rows: list[dict[str, Any]]
    """One entry per evaluation during training: step, mean, returns, calibration."""
    log: dict[str, np.ndarray]
    """One entry per step, where the environment lists its observations (N-Chain, Deep Sea): action, reward, done,
    optimal, and inside XLA also state_index and greedy. All others: empty."""
    snapshots: dict[str, np.ndarray]
    """Runs inside XLA have one entry per row of `metrics`: atoms[actions, n] and scores[actions] at the start state."""
    episode_rows: Sequence[dict[str, Any]]
    """One entry per training episode: step at its end, return, length."""
    best: TrainedAgent | None = None
    """The agent at its best evaluation (ties: the latest); None if there was no evaluation."""
    stopped: Stopped | None = None
    """Where and why a callback ended the run before its last step; None if it went to its end."""
    final_rows: Sequence[dict[str, Any]] = ()
    """The evaluation after training, as in ``final.jsonl``: of the last weights, and of the best if they are others."""

    @property
    def metrics(self) -> pd.DataFrame:
        """A row every ``record_every`` steps: returns, loss, exploration, and what the callback added."""
        return _table(self.rows, ("step", "updates", "episodes"), ("step", "updates", "episodes"))

    @property
    def evaluations(self) -> pd.DataFrame:
        """A row per evaluation: step, mean and standard deviation of its returns, the returns, calibration."""
        return _table(self.evaluation_rows, ("step", "mean", "std", "returns", "lengths", "calibration"), ("step",))

    @property
    def episodes(self) -> pd.DataFrame:
        """A row per training episode: step at its end, return, length."""
        return _table(self.episode_rows, ("step", "return", "length"), ("step", "length"))

    @property
    def optimal_count(self) -> int:
        """Steps whose action the environment counts as optimal, where steps are logged."""
        if "optimal" not in self.log:
            raise ValueError(
                f"{self.spec.env} logs no steps, because it does not list its observations, or knows no optimal "
                'actions: see metrics["optimal_share"]'
            )
        return int(self.log["optimal"].sum())


def _table(rows: Sequence[dict[str, Any]], columns: tuple[str, ...], counts: tuple[str, ...]) -> pd.DataFrame:
    """Rows as a table, with these columns if there are none; ``counts`` are whole numbers."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=None if rows else list(columns)).astype(dict.fromkeys(counts, int))
