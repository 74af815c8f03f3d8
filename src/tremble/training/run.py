"""One training run from its description to its results: built, driven, recorded, evaluated, saved, continued.

Both loops (inside XLA, and beside a Gymnasium environment) are driven by the same code; it knows when things are due
and where they are written, and nothing about agents.
"""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gymnasium
import jax
import numpy as np

from tremble.agent import Agent
from tremble.envs.gym import Environment, Serial, make_single, name_of, open_environment
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import benchmark_of, is_jax_env, jax_envs, make_jax_env
from tremble.replay import readable
from tremble.settings import SettingsError, nearest
from tremble.trackers import open_trackers
from tremble.training.checkpoint import CheckpointError, Contents
from tremble.training.evaluation import evaluate
from tremble.training.gym_loop import GymLoop
from tremble.training.interrupt import deferred_interrupt
from tremble.training.run_directory import BEST, RunFiles, Unsaved
from tremble.training.spec import ADDED_LATER, CUSTOM, RunSpec
from tremble.training.trained import Counts, TrainedAgent, load
from tremble.training.xla_loop import DEFAULT_CHUNK, Record, XlaLoop

SAVE_SECONDS = float(os.environ.get("TREMBLE_SAVE_SECONDS", "600"))
"""A run is saved at least this often, however slow its environment is."""


@runtime_checkable
class Loop(Protocol):
    """A run in progress."""

    t: int
    finished: list[tuple[int, float, int]]

    @property
    def params(self) -> Any: ...
    def advance(self, until: int) -> None: ...
    def record(self) -> dict[str, Any]: ...
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]: ...
    def load(self, contents: Contents) -> bool: ...
    @property
    def intact(self) -> bool: ...


@dataclass(frozen=True)
class Run:
    """A finished run: the agent, what it did, and how it learned."""

    spec: RunSpec
    agent: TrainedAgent
    rows: list[dict[str, Any]]
    """What `metrics` is made of."""
    evaluations: list[dict[str, Any]]
    """One entry per evaluation during training: step, mean, returns, calibration."""
    log: dict[str, np.ndarray]
    """Runs inside XLA have one entry per step: state_index, action, reward, done, optimal, greedy. Where an environment
    written in JAX was stepped beside the loop: action, reward, done, optimal."""
    snapshots: dict[str, np.ndarray]
    """Runs inside XLA have one entry per row of `metrics`: atoms[actions, n] and scores[actions] at the start state."""
    episodes: list[dict[str, Any]]
    """Runs beside a Gymnasium environment have one entry per training episode: step, return, length."""
    best: TrainedAgent | None = None
    """The agent as it was at its best evaluation, the later of two equals; None if there was none."""

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
    ``module:Class``, a function that makes an environment, or a ready-made one.

    With ``out``, the run is saved there as it goes; the same call, or `resume`, continues it after an interruption,
    with the same numbers as if there had been none wherever the environment can be brought back.
    ``replay_file`` keeps the pictures of Atari's replay in a file instead of in memory.
    """
    if isinstance(agent, Agent) and agent_options:
        raise SettingsError("settings by name go with an agent's name; change the Agent itself, or name a preset")
    name = agent if isinstance(agent, str) else CUSTOM
    env_name = env if isinstance(env, str) else CUSTOM
    spec = RunSpec(
        name,
        env_name,
        steps,
        seed,
        hyperparameters,
        agent_options,
        env_options or {},
        record_every,
        n_envs,
        parallel,
        evaluate_every,
        evaluate_episodes,
        evaluate_steps,
    )
    built = spec.build_agent() if isinstance(agent, str) else agent
    return run_loop(
        spec,
        built,
        env,
        None if out is None else Path(out),
        checkpoint_every=checkpoint_every,
        chunk=chunk,
        replay_file=None if replay_file is None else Path(replay_file),
        trackers=trackers,
        on_progress=on_progress,
        on_message=on_message,
    )


def resume(directory: str | Path, **how: Any) -> Run:
    """Continue the run in a directory to its end; all settings are in there."""
    files = RunFiles(Path(directory))
    contents = files.newest(check_blocks=False)
    if contents is None:
        raise CheckpointError(f"there is no run to resume in {directory}: no checkpoints/")
    spec = RunSpec(**contents.meta["spec"])
    if CUSTOM in (spec.agent, spec.env):
        raise SettingsError(
            f"{directory} was trained with an agent or environment given as an object: repeat the call to "
            "tremble.train with the same objects and out=, which continues it"
        )
    agent = spec.rebuild_agent(contents.meta["settings"]["agent_settings"])
    return run_loop(spec, agent, spec.env, Path(directory), **how)


def run_loop(
    spec: RunSpec,
    agent: Agent,
    env: Any,
    directory: Path | None,
    *,
    checkpoint_every: int | None = None,
    replay_file: Path | None = None,
    chunk: int = DEFAULT_CHUNK,
    trackers: Sequence[str] = (),
    on_progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    on_message: Callable[[str], None] = lambda text: None,
) -> Run:
    """Run a loop from where it stands to its last step, doing what is due on the way."""
    steps = spec.steps
    save_every = checkpoint_every or max(1000, steps // 20)
    inside = spec.compiled(agent)
    world = None if inside else _open(spec, env)
    loop: Loop
    if world is None:
        stops = tuple(n for n in (chunk, save_every if directory else 0) if n)
        loop = XlaLoop(agent, make_jax_env(spec.env, spec.env_options), spec.seed, steps, spec.record_every, stops)
        encoder, n_actions = loop.encoder, loop.env.n_actions
    else:
        agent = _fitted(agent, spec, world.n_envs)
        loop = GymLoop(agent, world, spec.seed, steps, replay_file)
        encoder, n_actions = world.encoder, world.n_actions
        where = "" if replay_file is None else f" in {replay_file}"
        kept = f"replay: {loop.capacity:,} transitions"
        if agent.replay.rollout:
            kept = f"rollouts: {agent.replay.rollout} steps in each of {world.n_envs} environments, learned from once"
        on_message(f"{kept}, up to {readable(loop.replay_bytes)}{where}")
    action_offset = 0 if world is None else world.action_offset
    described = {
        "spec": spec.as_json(),
        "settings": spec.describe(agent),
        "encoder": encoder.describe(),
        "n_actions": n_actions,
        "action_offset": action_offset,
    }
    files = Unsaved() if directory is None else RunFiles(directory)
    rows: list[dict[str, Any]] = []
    evaluations: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []
    if (contents := files.newest()) is not None:
        _refuse_other_settings(directory, described, contents.meta)
        if not loop.load(contents):
            warnings.warn(
                f"{name_of(env)} could not be brought back to where it was, so new episodes begin at step {loop.t}: "
                "the run goes on, but not with the numbers of an uninterrupted one. An environment with save_state and "
                "load_state, or one that is random through its np_random only, resumes exactly.",
                stacklevel=3,
            )
        rows, evaluations, episodes = (files.rows(log) for log in ("metrics", "evaluations", "episodes"))
        on_message(f"continuing at step {loop.t:,}")
    best = load(directory / BEST, agent) if evaluations and directory and (directory / BEST).exists() else None
    sink = open_trackers(trackers, directory or Path("runs"), f"{spec.agent}-{spec.env}-s{spec.seed}", described)

    def trained() -> TrainedAgent:
        row = rows[-1] if rows else {}
        counts = Counts(loop.t, int(row.get("updates", 0)), int(row.get("episodes", 0)))
        return TrainedAgent(agent, loop.params, encoder, n_actions, action_offset, counts, spec)

    def save() -> None:
        if isinstance(files, Unsaved):
            return
        trees, facts = loop.state()
        counts = {"counts": {**trained().counts.__dict__}}
        large = loop.blocks if isinstance(loop, GymLoop) else None
        files.save(loop.t, trees, facts, jax.device_get(loop.params), described | counts, large)

    last_save, saved_at = time.monotonic(), loop.t
    try:
        with deferred_interrupt() as interrupted:
            while loop.t < steps:
                before = loop.t
                due = [spec.record_every, save_every, chunk] + ([spec.evaluate_every] if spec.evaluate_every else [])
                loop.advance(min([steps, *((before // every + 1) * every for every in due)]))

                def passed(every: int, before: int = before) -> bool:
                    return bool(every) and (loop.t // every > before // every or loop.t >= steps)

                for step, total, length in loop.finished:
                    episodes.append({"step": step, "return": total, "length": length})
                    files.append("episodes", episodes[-1])
                loop.finished.clear()
                if passed(spec.record_every):
                    rows.append(loop.record())
                    files.append("metrics", rows[-1])
                    sink.write(loop.t, {k: v for k, v in rows[-1].items() if v is not None})
                if passed(spec.evaluate_every):
                    result = evaluate(
                        trained(), evaluation_maker(spec, env), seed=spec.seed, **evaluation_settings(spec)
                    )
                    if all(result.mean >= row["mean"] for row in evaluations):
                        # A copy: the next update consumes the parameters.
                        best = dataclasses.replace(trained(), params=jax.device_get(loop.params))
                        files.save_best(best.params, described | {"counts": {**best.counts.__dict__}})
                    evaluations.append({"step": loop.t, **result.row()})
                    files.append("evaluations", evaluations[-1])
                    sink.write(loop.t, {"evaluation/return": result.mean})
                if passed(save_every) or time.monotonic() - last_save > SAVE_SECONDS:
                    save()
                    last_save, saved_at = time.monotonic(), loop.t
                on_progress(loop.t, _summary(rows, evaluations))
                if interrupted():
                    raise KeyboardInterrupt
    finally:
        # Also on Ctrl-C and on errors: what was made is kept. A state that a compiled call began to consume is gone.
        if loop.t > saved_at and loop.intact:
            save()
        sink.close()
        if world is not None:
            world.close()
    record = loop.record_so_far if isinstance(loop, XlaLoop) else Record()
    made = record.arrays()
    log = made["log"] if world is None else _stepped(world)
    return Run(spec, trained(), rows, evaluations, log, made["snapshots"], episodes, best)


def _stepped(world: Environment) -> dict[str, np.ndarray]:
    """What an environment written in JAX remembers of its steps; others remember nothing."""
    single = world.envs[0].unwrapped if isinstance(world, Serial) else None
    return single.log() if isinstance(single, JaxGymEnv) else {}


def evaluation_maker(spec: RunSpec, env: Any) -> Callable[[], gymnasium.Env[Any, Any]]:
    """How to make a fresh environment for evaluation."""
    if is_jax_env(spec.env):
        options = dict(spec.env_options)
        render_mode = options.pop("render_mode", None)
        return lambda: JaxGymEnv(make_jax_env(spec.env, options), render_mode=render_mode)
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        made = getattr(env, "spec", None)
        if made is None:
            raise SettingsError(
                "evaluation needs an environment of its own: give train a Gymnasium id or a function instead of a "
                "ready-made environment, or evaluate_every=0"
            )
        return partial(gymnasium.make, made.id, **dict(made.kwargs))
    benchmark = benchmark_of(spec.env)
    return partial(
        make_single, env, spec.env_options | ({} if benchmark is None else dict(benchmark.evaluation_options))
    )


def evaluation_settings(spec: RunSpec) -> dict[str, Any]:
    """How long evaluations are, how they end, and how often they act at random.

    Episodes are played out, and nothing is random; but on Atari both are as the protocol says, or as the agent was
    published under it.
    """
    length = {"episodes": spec.evaluate_episodes, "steps": spec.evaluate_steps}
    benchmark = benchmark_of(spec.env)
    if benchmark is None or spec.protocol is None:
        return length
    return length | benchmark.evaluation_rules(spec.protocol, spec.agent)


def _open(spec: RunSpec, env: Any) -> Environment:
    """The environments of a run beside Gymnasium."""
    if is_jax_env(spec.env):
        if spec.n_envs > 1:
            raise SettingsError(f"{spec.env} is written in JAX: train_many runs many of it at once, n_envs does not")
        return open_environment(JaxGymEnv(make_jax_env(spec.env, spec.env_options), spec.seed))
    if isinstance(env, str) and not (":" in env or "/" in env) and env not in gymnasium.registry:
        known = [*jax_envs(), *gymnasium.registry]
        raise SettingsError(f"there is no environment {env!r}; {_hint(env, known)}")
    return open_environment(env, spec.n_envs, spec.parallel, spec.env_options)


def _fitted(agent: Agent, spec: RunSpec, n_envs: int) -> Agent:
    """The agent beside so many environments; settings that follow from their number may not be given otherwise."""
    fitted = agent.fitted_to(n_envs)
    for name in ("batch_size", "memory_size", "update_interval"):
        if spec.agent_options.get(name, getattr(fitted, name)) != getattr(fitted, name):
            raise SettingsError(
                f"{name} of {spec.agent!r} follows from its rollouts: {n_envs} environments times "
                f"{agent.replay.rollout} steps are {getattr(fitted, name)}. Leave it out, or change n_envs or rollout."
            )
    return fitted


def _hint(name: str, known: Sequence[str]) -> str:
    hint = nearest(name, known)
    return hint if hint.startswith("did") else "give one of `tremble list`, a Gymnasium id, or module:Class"


def _summary(rows: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    newest = dict(rows[-1]) if rows else {}
    return newest | ({"evaluation": evaluations[-1]["mean"]} if evaluations else {})


def _refuse_other_settings(directory: Path | None, here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    older = {f"agent_settings.{name}": value for name, value in ADDED_LATER.items()}
    mine, theirs = _flatten(here["settings"]), _flatten(there.get("settings", {}))
    theirs = {name: value for name, value in older.items() if name in mine} | theirs
    different = sorted(n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n))
    if different:
        raise CheckpointError(
            f"{directory} holds a run with other settings (different: {', '.join(different)}). "
            "Choose another directory, repeat the settings to continue it, or continue it as it is: tremble resume."
        )


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


__all__ = ["Run", "evaluation_maker", "name_of", "resume", "run_loop", "train"]
