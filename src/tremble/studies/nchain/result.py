"""The numbers that the N-Chain studies read from a stored run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tremble.report.statistics import Interval, mean_interval
from tremble.training import checkpoint
from tremble.training.spec import RunSpec
from tremble.worlds.gaussian_mixture import GaussianMixture
from tremble.worlds.nchain import LEFT, NChain

COLUMNS = ["seed", "optimal_count", "left_count", "w2_left"]
"""Columns of raw data, made by `NChainResult.row`."""


@dataclass(frozen=True)
class NChainResult:
    """Counts of actions and predicted distributions of one run."""

    seed: int
    steps: np.ndarray
    """Steps of the records ``[records]``."""
    optimal: np.ndarray
    """Optimal actions up to each record."""
    left: np.ndarray
    """Actions `left` up to each record."""
    atoms: np.ndarray
    """Predicted return at the start state, ``[records, actions, quantiles]``; runs in the Gymnasium loop have the last record only."""
    scores: np.ndarray
    """Scores of the criterion there, ``[records, actions]``; empty for runs in the Gymnasium loop."""
    w2_left: float
    """Final W2 between the predicted and the true return of (s2, left)."""
    env: NChain
    gamma: float

    @property
    def count(self) -> int:
        """Optimal actions over the whole run."""
        return int(self.optimal[-1])

    @property
    def left_count(self) -> int:
        """Actions `left` over the whole run."""
        return int(self.left[-1])

    def row(self) -> list[Any]:
        """The cells of `COLUMNS`."""
        return [self.seed, self.count, self.left_count, f"{self.w2_left:.5f}"]

    def truth(self, action: int) -> GaussianMixture:
        """The return of walking straight on in the direction of a first action."""
        return self.env.committed_return(self.env.start, action, self.gamma)


def load_result(path: Path, seed: int, spec: RunSpec) -> NChainResult:
    """Read a stored run."""
    contents = checkpoint.read(path)
    log, snapshots = contents.group("log"), contents.group("snapshots")
    steps = np.array([int(row["step"]) for row in contents.meta["rows"]])
    agent, env = spec.build()
    assert isinstance(env, NChain)
    gamma = float(agent.gamma)
    truth = env.committed_return(env.start, LEFT, gamma)
    return NChainResult(
        seed,
        steps,
        np.cumsum(log["optimal"], dtype=np.int64)[steps - 1],
        np.cumsum(log["action"] == LEFT, dtype=np.int64)[steps - 1],
        snapshots["atoms"],
        snapshots.get("scores", np.zeros((0, env.n_actions))),
        truth.w2(snapshots["atoms"][-1, LEFT]),
        env,
        gamma,
    )


def count_by_seed(runs: Iterable[Any]) -> dict[int, int]:
    """Optimal actions of each run."""
    return {run.seed: run.count for run in runs}


def count_interval(runs: Iterable[Any], steps: int) -> Interval:
    """Their mean over runs of so many steps."""
    return mean_interval([run.count for run in runs], between=(0, steps))
