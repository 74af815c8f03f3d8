"""One training run from its settings to its results: train, record, evaluate, save, resume.

Both loops (inside XLA, and beside a Gymnasium environment) are driven by the same code, `run_loop`, through the
interface `tremble.training.loop.Loop`.
"""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tremble.agent import Agent
from tremble.envs.encoding import Actions, Encoder
from tremble.envs.gym import name_of
from tremble.records import finite
from tremble.settings import SettingsError
from tremble.trackers import Trackers, open_trackers
from tremble.training.checkpoint import Contents
from tremble.training.consent import code_of_agent, code_of_environment, require_consent
from tremble.training.evaluation import evaluate
from tremble.training.evaluation_env import EvaluationEnv, evaluation_maker, evaluation_settings, prepare
from tremble.training.interrupt import deferred_signals, stopped_by
from tremble.training.loop import DEFAULT_CHUNK, Loop, next_stop
from tremble.training.machine import MadeWith
from tremble.training.open_loop import open_loop
from tremble.training.run_directory import RunFiles, Unsaved
from tremble.training.spec import CUSTOM, RunSpec
from tremble.training.trained import Counts, TrainedAgent, learner_shapes, load

SAVE_SECONDS = float(os.environ.get("TREMBLE_SAVE_SECONDS", "600"))
"""Seconds after which a run is saved although no checkpoint is due by steps."""


@dataclass(frozen=True)
class Run:
    """A finished run: the trained agent and everything recorded on the way."""

    spec: RunSpec
    agent: TrainedAgent
    rows: list[dict[str, Any]]
    """The rows of `metrics`."""
    evaluations: list[dict[str, Any]]
    """One entry per evaluation during training: step, mean, returns, calibration."""
    log: dict[str, np.ndarray]
    """One entry per step. Runs inside XLA: state_index, action, reward, done, optimal, greedy. Environments with an
    observation table that were stepped under Gymnasium: action, reward, done, optimal. All others: empty."""
    snapshots: dict[str, np.ndarray]
    """Runs inside XLA have one entry per row of `metrics`: atoms[actions, n] and scores[actions] at the start state."""
    episodes: list[dict[str, Any]]
    """One entry per training episode: step at its end, return, length."""
    best: TrainedAgent | None = None
    """The agent at its best evaluation (ties: the latest); None if there was no evaluation."""

    @property
    def metrics(self) -> Any:
        """A pandas DataFrame with a row every ``record_every`` steps."""
        import pandas as pd

        return pd.DataFrame(self.rows).astype({"step": int, "updates": int, "episodes": int})

    @property
    def optimal_count(self) -> int:
        """Steps whose action the environment counts as optimal."""
        return int(self.log["optimal"].sum())


def train(
    agent: str | Agent,
    env: Any,
    *,
    steps: int,
    seed: int = 0,
    out: str | Path | None = None,
    hyperparameters: str | None = None,
    env_options: dict[str, Any] | None = None,
    record_every: int = 500,
    n_envs: int = 1,
    parallel: bool = False,
    evaluate_every: int = 0,
    evaluate_episodes: int = 10,
    evaluate_steps: int = 0,
    evaluate_env: Any = None,
    checkpoint_every: int | None = None,
    replay_file: str | Path | None = None,
    chunk: int = DEFAULT_CHUNK,
    trackers: Sequence[str] = (),
    on_progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    on_message: Callable[[str], None] = lambda text: None,
    **agent_options: Any,
) -> Run:
    """Train an agent on an environment and return the run.

    ``agent`` is a name from `tremble.list_agents()` or an `Agent`; further keyword arguments change its settings
    (``delta_0=100``). ``env`` is a name from `tremble.list_envs()` (these train inside XLA), a Gymnasium id,
    ``module:Class``, a function that makes an environment, or a ready-made one. Evaluations are in environments made in
    the same way, a ready-made one with its wrappers, or in ``evaluate_env`` (an id, a function or a ready-made one).

    With ``out``, checkpoints and logs are written there; the same call, or `resume`, continues an interrupted run, bit
    for bit as if it had not been interrupted if the environment can be restored.
    ``replay_file`` keeps the pictures of Atari's replay in a file instead of in memory.
    """
    if isinstance(agent, Agent) and agent_options:
        raise SettingsError("settings by name go with an agent's name; change the Agent itself, or name a preset")
    spec = RunSpec(
        agent=agent if isinstance(agent, str) else CUSTOM,
        env=env if isinstance(env, str) else CUSTOM,
        steps=steps,
        seed=seed,
        hyperparameters=hyperparameters,
        agent_options=agent_options,
        env_options=env_options or {},
        record_every=record_every,
        n_envs=n_envs,
        parallel=parallel,
        evaluate_every=evaluate_every,
        evaluate_episodes=evaluate_episodes,
        evaluate_steps=evaluate_steps,
        evaluate_env=evaluate_env if isinstance(evaluate_env, str | None) else CUSTOM,
    )
    built = spec.build_agent() if isinstance(agent, str) else agent
    return run_loop(
        spec,
        built,
        env,
        None if out is None else Path(out),
        evaluate_env=evaluate_env,
        checkpoint_every=checkpoint_every,
        chunk=chunk,
        replay_file=None if replay_file is None else Path(replay_file),
        trackers=trackers,
        on_progress=on_progress,
        on_message=on_message,
    )


def resume(directory: str | Path, *, trust_code: bool = False, **how: Any) -> Run:
    """Continue the run in a directory to its end with the settings recorded there.

    A run whose environment, criterion or functions are somebody's own (``module:name``) names code to import: refused,
    unless ``trust_code`` is true.
    """
    directory = Path(directory)
    described = RunFiles(directory).described()
    spec = described.record("spec", RunSpec)
    if CUSTOM in (spec.agent, spec.env, spec.evaluate_env):
        raise SettingsError(
            f"{directory} was trained with an agent or environment given as an object: repeat the call to "
            "tremble.train with the same objects and out=, which continues it"
        )
    recorded = described.settings()
    require_consent(described.path, code_of_agent(spec, recorded) | code_of_environment(spec), trust_code)
    agent = spec.rebuild_agent(recorded)
    # Before anything is allocated: the settings may ask for another network than the one that is there.
    if described.arrays:
        group = "state/learner" if any(name.startswith("state/") for name in described.arrays) else "learner"
        with described.reading():
            encoder, actions = described.record("encoder", Encoder), described.record("actions", Actions)
            described.tree(group, learner_shapes(agent, encoder, actions.n))
    return run_loop(spec, agent, spec.env, directory, **how)


def run_loop(
    spec: RunSpec,
    agent: Agent,
    env: Any,
    directory: Path | None,
    *,
    evaluate_env: Any = None,
    checkpoint_every: int | None = None,
    replay_file: Path | None = None,
    chunk: int = DEFAULT_CHUNK,
    trackers: Sequence[str] = (),
    on_progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    on_message: Callable[[str], None] = lambda text: None,
) -> Run:
    """Open the loop of a run, restore what its directory holds, and train to the last step."""
    save_every = checkpoint_every or max(1000, spec.steps // 20)
    # Closed also on Ctrl-C and on errors: completed steps are saved.
    with closing(open_loop(spec, agent, env, replay_file)) as loop:
        on_message(loop.memory)
        with (
            closing(RunInProgress(spec, env, loop, directory, save_every, evaluate_env)) as run,
            deferred_signals() as asked,
        ):
            if run.start(trackers):
                on_message(f"continuing at step {loop.t:,}")
            while loop.t < spec.steps:
                run.advance(chunk, lambda: asked() is not None)
                on_progress(loop.t, run.summary())
                if (number := asked()) is not None:
                    raise stopped_by(number)
        return run.result()


class RunInProgress:
    """A loop, the results so far, and the files they go to."""

    def __init__(
        self, spec: RunSpec, env: Any, loop: Loop, directory: Path | None, save_every: int, evaluate_env: Any = None
    ):
        """Before the first step; nothing is written yet."""
        self.spec, self.env, self.loop = spec, env, loop
        self.evaluation_env = _for_evaluation(spec, env, evaluate_env, loop) if spec.evaluate_every else None
        self.directory, self.save_every = directory, 0 if directory is None else save_every
        self.files = Unsaved() if directory is None else RunFiles(directory)
        self.described: dict[str, Any] = {
            "spec": spec.as_json(),
            "settings": spec.describe(loop.agent),
            "encoder": loop.encoder.describe(),
            "actions": loop.actions.describe(),
        }
        self.rows: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.episodes: list[dict[str, Any]] = []
        self.best: TrainedAgent | None = None
        self._trackers = Trackers(())
        self._saved_at, self._saved_time = 0, time.monotonic()
        self._settled = False
        """Whether everything due up to the present step is done, so that the state may be saved."""

    def start(self, trackers: Sequence[str]) -> bool:
        """Own the directory, restore its newest checkpoint and open trackers; whether there was a checkpoint."""
        self.files.lock()
        contents = self.files.restore_point(self.described)
        before = [] if contents is None else contents.made_with()
        if contents is not None:
            self._restore(contents)
        elif self.directory is not None and self.loop.not_restorable:
            warnings.warn(
                f"{name_of(self.env)} is {self.loop.not_restorable}: after an interruption this run goes on with new "
                "episodes, not with the numbers of an uninterrupted one. For that give an id or a function and n_envs.",
                stacklevel=4,
            )
        self.described["made_with"] = [dataclasses.asdict(entry) for entry in _continued(before, self.loop.t)]
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
        self.rows, self.evaluations, self.episodes = (
            self.files.rows(log) for log in ("metrics", "evaluations", "episodes")
        )
        if self.evaluations and (path := self.files.best_weights()) is not None:
            self.best = load(path, self.loop.agent)
        self._saved_at = self.loop.t

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

        def due(every: int) -> bool:
            return bool(every) and (loop.t // every > before // every or loop.t >= spec.steps)

        self._log_episodes()
        if due(spec.record_every):
            self._record()
        if due(spec.evaluate_every):
            self.files.show("evaluating", loop.t)
            self._evaluate()
        self._settled = True
        if due(self.save_every) or time.monotonic() - self._saved_time > SAVE_SECONDS:
            self._save()

    def _log_episodes(self) -> None:
        for episode in self.loop.finished:
            self.episodes.append(finite(episode.row()))
            self.files.append("episodes", self.episodes[-1])
        self.loop.finished.clear()

    def _record(self) -> None:
        row = finite(self.loop.record())
        self.rows.append(row)
        self.files.append("metrics", row)
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        self._trackers.write(self.loop.t, numbers)

    def _evaluate(self) -> None:
        spec, now = self.spec, self.trained()
        result = evaluate(now, self.evaluation_env, seed=spec.seed, **evaluation_settings(spec))
        if all(row["mean"] is None or result.mean >= row["mean"] for row in self.evaluations):
            # A copy: the next update consumes the parameters.
            self.best = dataclasses.replace(now, params=jax.device_get(now.params))
            parts = {"params": self.best.params, "statistics": self.best.statistics}
            self.files.save_best(parts, self._described_now())
        row = finite({"step": self.loop.t, **result.row()})
        self.evaluations.append(row)
        self.files.append("evaluations", row)
        self._trackers.write(self.loop.t, {"evaluation/return": result.mean})

    def _save(self) -> None:
        self.files.save(self.loop, self._described_now())
        self._saved_at, self._saved_time = self.loop.t, time.monotonic()

    def _counts(self) -> Counts:
        newest = self.rows[-1] if self.rows else {}
        frames = self.loop.frames_per_step * self.loop.t
        return Counts(self.loop.t, int(newest.get("updates", 0)), int(newest.get("episodes", 0)), frames)

    def _described_now(self) -> dict[str, Any]:
        return self.described | {"counts": dataclasses.asdict(self._counts())}

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
