"""A run while it trains: what is recorded, evaluated and saved at which step."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
from gymnasium.vector import VectorEnv

from tremble import escape
from tremble.envs.faults import EnvironmentFaultError
from tremble.envs.gym import name_of
from tremble.presets import PARTS
from tremble.records import finite
from tremble.settings import reference
from tremble.trackers import Trackers, open_trackers
from tremble.training.callback import Callback, Kind, Progress, Stopped, added_metrics
from tremble.training.checkpoint import Contents
from tremble.training.episode_rows import EpisodeRows
from tremble.training.evaluation import EvaluationStopped, evaluate
from tremble.training.evaluation_env import EvaluationEnv, evaluation_maker, evaluation_settings, prepare
from tremble.training.lock import Lock
from tremble.training.loop import Loop, next_stop
from tremble.training.machine import MadeWith
from tremble.training.result import Run
from tremble.training.run_directory import RunFiles, Unsaved
from tremble.training.spec import RunSpec
from tremble.training.trained import Counts, TrainedAgent, load

FINAL_SEED = 1_000_000
"""Offset of the seeds of final evaluations, so that they differ from those during training."""
SAVE_SECONDS = float(os.environ.get("TREMBLE_SAVE_SECONDS", "600"))
"""Seconds after which a run is saved although no checkpoint is due by steps."""


class RunInProgress:
    """A loop, the results so far, and the files they go to."""

    def __init__(
        self,
        spec: RunSpec,
        env: Any,
        loop: Loop,
        directory: Path | None,
        save_every: int,
        evaluate_env: Any = None,
        callback: Callback | None = None,
        lock: Lock | None = None,
    ):
        """Before the first step; nothing is written yet. ``lock`` is the caller's, for the directory."""
        self.spec, self.env, self.loop, self._callback = spec, env, loop, callback
        evaluated = spec.evaluate_every or spec.final_episodes
        self.evaluation_env = _for_evaluation(spec, env, evaluate_env, loop) if evaluated else None
        self.directory, self.save_every = directory, 0 if directory is None else save_every
        self.files = Unsaved() if directory is None else RunFiles(directory, lock)
        self.described: dict[str, Any] = {
            "spec": spec.as_json(),
            "settings": spec.describe(loop.agent),
            "encoder": loop.encoder.describe(),
            "actions": loop.actions.describe(),
            "parts": {part: reference(type(getattr(loop.agent, part))) for part in PARTS},
            "env_name": name_of(env) if isinstance(env, str | gymnasium.Env | VectorEnv) else reference(env),
            "callback": None if callback is None else reference(callback),
        }
        self.rows: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.final: list[dict[str, Any]] = []
        self.episodes = EpisodeRows()
        self.best: TrainedAgent | None = None
        self.stopped: Stopped | None = None
        self._trackers = Trackers(())
        self._saved_at, self._saved_time = 0, time.monotonic()
        self._settled = False
        """Whether everything due up to the present step is done, so that the state may be saved."""
        self._owed = False
        """Whether the evaluation at the present step was interrupted: it is made on resume."""

    def start(self, trackers: Sequence[str], lengthen: bool = False) -> bool:
        """Own the directory, restore its newest checkpoint and open trackers; whether there was a checkpoint."""
        self.files.lock()
        contents = self.files.restore_point(self.described, lengthen)
        before = [] if contents is None else contents.made_with()
        if contents is not None:
            self._restore(contents)
            if "stopped" in contents.meta and not lengthen:
                self._stop(contents.record("stopped", Stopped))
        elif self.directory is not None and self.loop.not_restorable:
            warnings.warn(
                f"{name_of(self.env)} is {self.loop.not_restorable}: after an interruption this run goes on with new "
                "episodes, not with the numbers of an uninterrupted one. For that give an id or a function and n_envs.",
                stacklevel=4,
            )
        self.described["made_with"] = [dataclasses.asdict(entry) for entry in _continued(before, self.loop.t)]
        if contents is not None and lengthen:
            self._save()  # from now on the newest checkpoint says how long the run is
        self.files.describe(self.described)
        if contents is not None:  # killed after the checkpoint was written and before the weights were
            self.files.save_weights(self.loop, self._described_now())
        name = f"{self.spec.agent}-{self.spec.env}-s{self.spec.seed}"
        self._trackers = open_trackers(trackers, self.directory or Path("runs"), name, self.described)
        return contents is not None

    def _restore(self, contents: Contents) -> None:
        with contents.reading():
            exact = self.loop.load(contents)
        if not exact:
            warnings.warn(
                f"{name_of(self.env)} could not be brought back to where it was, so new episodes begin at step "
                f"{self.loop.t}: the run goes on, but not with the numbers of an uninterrupted one. "
                + (
                    f"It is {self.loop.not_restorable}; for that give an id or a function and n_envs."
                    if self.loop.not_restorable
                    else "An environment with save_state and load_state, or one that is random through its np_random "
                    "only, resumes exactly."
                ),
                stacklevel=5,
            )
        self.rows, self.evaluations = self.files.rows("metrics"), self.files.rows("evaluations")
        self.episodes, self.final = EpisodeRows(self.files.rows("episodes")), self.files.rows("final")
        if self.evaluations and (path := self.files.best_weights()) is not None:
            best = load(path, self.loop.agent)
            # Another one is of an evaluation after the checkpoint, which an exact resume repeats.
            if exact or best.counts.transitions in [row["step"] for row in self.evaluations]:
                self.best = best
        self._owed = "owes_evaluation" in contents.meta and self.evaluation_env is not None
        self._saved_at = self.loop.t
        there = contents.meta.get("callback")
        if there is not None and there != self.described["callback"]:
            warnings.warn(
                f"this run was trained with the callback {escape.plain(there)}, which is not called from here on: "
                "repeat the call to tremble.train with callback=",
                stacklevel=5,
            )

    def advance(self, chunk: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Step to where something is due next, at most to a multiple of ``chunk``, and do it.

        It ends after the step at which ``stop`` returns true.
        """
        spec, loop, before = self.spec, self.loop, self.loop.t
        intervals = (spec.record_every, spec.evaluate_every, self.save_every, chunk)
        self.files.show("training", before)
        self._settled = True  # nothing is due before the next stop
        loop.advance(next_stop(before, spec.steps, intervals), stop)
        self._settled = False

        def passed(every: int) -> bool:
            return bool(every) and loop.t // every > before // every

        at_end = loop.t >= spec.steps
        self._log_episodes()
        if passed(spec.record_every) or at_end:
            self._record(final=not passed(spec.record_every))
        if passed(spec.evaluate_every) or (spec.evaluate_every and at_end):
            self._evaluate(stop)
        self._settled = True
        if passed(self.save_every) or at_end or self.stopped or time.monotonic() - self._saved_time > SAVE_SECONDS:
            self._save()
        if self.stopped:
            self.files.describe(self.described)

    def make_owed_evaluation(self, stop: Callable[[], bool] = lambda: False) -> None:
        """The evaluation at the step of the checkpoint, if it was interrupted."""
        if self._owed:
            self._evaluate(stop)
            self._save()

    def finish(self, stop: Callable[[], bool] = lambda: False) -> None:
        """What is made once, after the last step: the evaluation on seeds of its own, and the log of steps.

        Last and best weights play the same episodes. On a benchmark the evaluation is the protocol's, of the last
        weights only: there the best evaluation during training is itself what papers report.
        """
        spec, rows = self.spec, []
        if spec.final_episodes and not any(row["step"] == self.loop.t for row in self.final):
            self.files.show("evaluating", self.loop.t)
            settings = evaluation_settings(spec) | {"seed": FINAL_SEED + spec.seed}
            settings |= {} if spec.protocol else {"episodes": spec.final_episodes, "steps": 0}
            judged = {"last": self._copy()}
            if self.best is not None and spec.protocol is None and self.best.counts != judged["last"].counts:
                judged["best"] = self.best
            for weights, agent in judged.items():
                try:
                    result = evaluate(agent, self.evaluation_env, stop=stop, **settings)
                except EvaluationStopped:
                    return
                facts = {"step": self.loop.t, "weights": weights, "weights_step": agent.counts.transitions}
                rows.append(finite(facts | result.final_row()))
            for row in rows:
                self.final.append(row)
                self.files.append("final", row)
            self._save()
        self.files.save_steps(self.loop, self._described_now())

    def _log_episodes(self) -> None:
        for episode in self.loop.finished:
            row = finite(episode.row())
            self.episodes.append(row)
            self.files.append("episodes", row)
        self.loop.finished.clear()

    def _record(self, final: bool) -> None:
        row = self.loop.record(final)
        self.rows.append(row)  # the counts of the agent that the callback sees are in it
        row = self.rows[-1] = finite(row | self._call_back("metrics", row))
        self.files.append("metrics", row)
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        self._trackers.write(self.loop.t, numbers)

    def _evaluate(self, stop: Callable[[], bool]) -> None:
        """Evaluate the agent as it is now, unless ``stop`` returns true meanwhile."""
        spec, now = self.spec, self.trained()
        self.files.show("evaluating", self.loop.t)
        assert self.evaluation_env is not None
        try:
            result = evaluate(now, self.evaluation_env, seed=spec.seed, stop=stop, **evaluation_settings(spec))
        except EvaluationStopped:
            self._owed = True
            return
        except EnvironmentFaultError:
            self._owed = self._settled = True  # the state before the evaluation is saved
            raise
        self._owed = False
        if all(row["mean"] is None or result.mean >= row["mean"] for row in self.evaluations):
            self.best = self._copy()
            parts = {"params": self.best.params, "statistics": self.best.statistics}
            self.files.save_best(parts, self._described_now())
        row = {"step": self.loop.t, **result.row()}
        row = finite(row | self._call_back("evaluation", row))
        self.evaluations.append(row)
        self.files.append("evaluations", row)
        self._trackers.write(self.loop.t, {"evaluation/return": result.mean})

    def _call_back(self, kind: Kind, row: dict[str, Any]) -> dict[str, float]:
        """What the callback adds to a row; notes whether it stops the run."""
        if self._callback is None:
            return {}
        progress = Progress(kind, row, self.rows, self.evaluations, self.episodes, self._copy)
        added = added_metrics(self._callback(progress), row)
        if progress.reason is not None and self.loop.t < self.spec.steps:
            self._stop(Stopped(self.loop.t, progress.reason))
        return added

    def _stop(self, stopped: Stopped) -> None:
        self.stopped = stopped
        self.described["stopped"] = dataclasses.asdict(stopped)

    def _copy(self) -> TrainedAgent:
        """The agent as it is now, with parameters that the next update does not consume."""
        now = self.trained()
        return dataclasses.replace(now, params=jax.device_get(now.params))

    def _save(self) -> None:
        self.files.save(self.loop, self._described_now())
        self._saved_at, self._saved_time = self.loop.t, time.monotonic()

    def _counts(self) -> Counts:
        newest = self.rows[-1] if self.rows else {}
        frames = self.loop.frames_per_step * self.loop.t
        return Counts(self.loop.t, int(newest.get("updates", 0)), int(newest.get("episodes", 0)), frames)

    def _described_now(self) -> dict[str, Any]:
        described = self.described | {"counts": dataclasses.asdict(self._counts())}
        return described | {"owes_evaluation": True} if self._owed else described

    def trained(self) -> TrainedAgent:
        """The agent as it is now."""
        loop = self.loop
        return TrainedAgent(
            loop.agent, loop.params, loop.encoder, loop.actions, self._counts(), self.spec, loop.statistics()
        )

    def summary(self) -> dict[str, Any]:
        """The newest row of the metrics, and the mean of the newest evaluation."""
        newest = dict(self.rows[-1]) if self.rows else {}
        return newest | ({"evaluation": self.evaluations[-1]["mean"]} if self.evaluations else {})

    def close(self) -> None:
        """Save what was made since the last checkpoint, unless the run stopped in the middle of a step."""
        try:
            self._log_episodes()
            if self.loop.t > self._saved_at and self._settled and self.loop.resumable:
                self._save()
        finally:
            self._trackers.close()
            self.files.unlock()

    def result(self) -> Run:
        """The run as it is now."""
        loop = self.loop
        return Run(
            self.spec,
            self.trained(),
            self.rows,
            self.evaluations,
            loop.step_log(),
            loop.snapshots(),
            self.episodes,
            self.best,
            self.stopped,
            self.final,
        )


def _for_evaluation(spec: RunSpec, env: Any, evaluate_env: Any, loop: Loop) -> EvaluationEnv:
    """The environments that a run is evaluated in; what is wrong with them shows before the first step."""
    source = evaluation_maker(spec, env, evaluate_env)
    made = source()
    try:
        prepare(made, source.name, loop.encoder, loop.actions, loop.statistics())
    finally:
        made.close()
    return source


def _continued(before: list[MadeWith], step: int) -> list[MadeWith]:
    """The record of what a run's numbers were computed with, an entry for each change on the way."""
    now = MadeWith.here(step)
    if not before:
        return [now]
    changed = before[-1].differences(now)
    if not changed:
        return before
    warnings.warn(
        f"the run goes on from step {step:,}, but not bit for bit as where it began: {'; '.join(changed)}",
        stacklevel=5,
    )
    return [*before, now]
