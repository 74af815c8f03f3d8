"""The numbers that the N-Chain studies read from a run, and what they all say about counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble.core import RandomStream, stream_key
from tremble.report.statistics import Interval
from tremble.representations import Expected
from tremble.studies.parts import over_seeds
from tremble.sweeps.finished_run import FinishedRun
from tremble.worlds.gaussian_mixture import GaussianMixture
from tremble.worlds.nchain import LEFT, NChain

COLUMNS = {"optimal_count": "count", "left_count": "left_count", "w2_left": "w2_text"}
"""Of raw data (`parts.write_runs`)."""


@dataclass(frozen=True)
class NChainResult:
    """Counts of actions and the predicted distributions of one run."""

    seed: int
    steps: np.ndarray
    """Steps of the records ``[records]``."""
    optimal: np.ndarray
    """Optimal actions up to each record."""
    left: np.ndarray
    """Actions `left` up to each record."""
    atoms: np.ndarray
    """Return predicted at the start state in the end, ``[actions, quantiles]``."""
    w2_left: float
    """W2 between the predicted and the true return of (s2, left); NaN if only a mean is predicted."""
    env: NChain
    gamma: float
    run: FinishedRun | None = None

    @property
    def count(self) -> int:
        """Optimal actions over the whole run."""
        return int(self.optimal[-1])

    @property
    def left_count(self) -> int:
        """Actions `left` over the whole run."""
        return int(self.left[-1])

    @property
    def w2_text(self) -> str:
        """As raw data have it."""
        return "" if np.isnan(self.w2_left) else f"{self.w2_left:.5f}"

    @property
    def seconds(self) -> float:
        """Processor time."""
        return float("nan") if self.run is None else self.run.seconds

    def truth(self, action: int) -> GaussianMixture:
        """The return of walking straight on in the direction of a first action."""
        return self.env.committed_return(self.env.start, action, self.gamma)


def load_result(run: FinishedRun) -> NChainResult:
    """Read a finished run. In the Gymnasium loop there are no snapshots: the trained agent predicts."""
    log, atoms = run.log, run.snapshots.get("atoms")
    agent, env = run.spec.build()
    assert isinstance(env, NChain)
    if atoms is None:
        start = np.asarray(env.observe(env.reset(stream_key(run.seed, RandomStream.RESET))))
        atoms = np.asarray(run.agent().distribution(start).equal_atoms())[None]
    steps, gamma = np.array([int(row["step"]) for row in run.rows]), float(agent.gamma)
    optimal, left = (np.cumsum(taken, dtype=np.int64)[steps - 1] for taken in (log["optimal"], log["action"] == LEFT))
    distributional = not isinstance(agent.representation, Expected)
    w2 = env.committed_return(env.start, LEFT, gamma).w2(atoms[-1, LEFT]) if distributional else np.nan
    return NChainResult(run.seed, steps, optimal, left, atoms[-1], w2, env, gamma, run)


def count_interval(runs: Sequence[Any], steps: int) -> Interval:
    """Mean over seeds of the optimal actions in so many steps."""
    return over_seeds(runs, "count", between=(0, steps))
