"""A finished run of a sweep, as analyses read it: its logs and its evaluation after training, each read when needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tremble.records import CheckpointError, read_rows
from tremble.sweep_records import Outcome
from tremble.sweeps.folder import PlannedRun
from tremble.training import checkpoint
from tremble.training.run_directory import STEPS
from tremble.training.spec import RunSpec
from tremble.training.trained import TrainedAgent, load


@dataclass(frozen=True)
class FinalEvaluation:
    """Episodes after training, on seeds that training did not see; numbers that were not finite are NaN."""

    returns: np.ndarray
    """Sum of rewards of each episode."""
    discounted: np.ndarray
    """What the agent's distributions are about (`training.evaluation.Evaluation`)."""
    lengths: np.ndarray
    truncated: np.ndarray
    predicted: np.ndarray
    """``[episodes, quantiles]`` at evenly spaced midpoints of the return predicted at the start."""
    calibration: dict[str, Any]
    """Of the whole prediction: w1, w2, mean_predicted, mean_happened, coverage, truncated."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())

    @property
    def w1(self) -> float:
        """W_1 of predicted and observed discounted returns from the start."""
        return _number(self.calibration["w1"])

    @property
    def median_coverage(self) -> float:
        """Share of episodes whose discounted return is at most the predicted median."""
        return _number(self.calibration["coverage"]["0.5"])


@dataclass(frozen=True)
class FinishedRun:
    """One run: its settings, how it ended, and what is in its directory."""

    seed: int
    spec: RunSpec
    directory: Path
    outcome: Outcome

    @property
    def seconds(self) -> float:
        """Processor time, compiling included."""
        return self.outcome.processor_seconds

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The metrics, a row every ``record_every`` steps."""
        return read_rows(self.directory / "metrics.jsonl", "metrics")

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Those during training: step, mean, returns, ..."""
        return read_rows(self.directory / "evaluations.jsonl", "evaluations")

    @cached_property
    def episodes(self) -> list[dict[str, Any]]:
        """Training episodes: step at the end, return, length."""
        return read_rows(self.directory / "episodes.jsonl", "episodes")

    @property
    def evaluated_at(self) -> np.ndarray:
        """Steps of the evaluations."""
        return np.array([row["step"] for row in self.evaluations], int)

    @property
    def evaluated_means(self) -> np.ndarray:
        """Their mean returns."""
        return np.array([row["mean"] for row in self.evaluations], float)

    @cached_property
    def _final(self) -> dict[str, dict[str, Any]]:
        rows = read_rows(self.directory / "final.jsonl", "final")
        newest = max((row["step"] for row in rows), default=0)
        found = {row["weights"]: row for row in rows if row["step"] == newest}
        if "last" not in found:
            raise CheckpointError(f"{self.directory} has no evaluation after training (final_episodes)")
        return found

    @cached_property
    def final(self) -> FinalEvaluation:
        """The evaluation after training, of the last weights."""
        return _evaluation(self._final["last"])

    @cached_property
    def best(self) -> FinalEvaluation:
        """The same episodes by the weights of the best evaluation; `final` where these are the last ones."""
        return _evaluation(self._final["best"]) if "best" in self._final else self.final

    @property
    def best_step(self) -> int:
        """The step of those weights."""
        return int((self._final.get("best") or self._final["last"])["weights_step"])

    @property
    def log(self) -> dict[str, np.ndarray]:
        """One entry for each step, where the environment lists its observations: action, reward, done, optimal, ...

        Read anew each time, like `snapshots`: of hundreds of runs they are too large to keep.
        """
        return checkpoint.read(self.directory / STEPS).group("log")

    @property
    def snapshots(self) -> dict[str, np.ndarray]:
        """Inside XLA there, one entry for each row: atoms[actions, n] and scores[actions] at a start state."""
        return checkpoint.read(self.directory / STEPS).group("snapshots")

    def agent(self, weights: Literal["newest", "best"] = "newest") -> TrainedAgent:
        """The trained agent."""
        return load(self.directory, weights=weights)


def finished_run(run: PlannedRun) -> FinishedRun | None:
    """The run of a sweep, if it was trained to its end; numbers that are not finite there are its result too."""
    outcome = run.outcome()
    if outcome is None or not (outcome.counts or (outcome.state == "diverged" and outcome.step >= run.steps)):
        return None
    return FinishedRun(run.seed, run.spec, run.directory, outcome)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _evaluation(row: dict[str, Any]) -> FinalEvaluation:
    returns, discounted, predicted = (np.array(row[name], float) for name in ("returns", "discounted", "predicted"))
    lengths, truncated = np.array(row["lengths"], int), np.array(row["truncated"], bool)
    return FinalEvaluation(returns, discounted, lengths, truncated, predicted, row["calibration"])
