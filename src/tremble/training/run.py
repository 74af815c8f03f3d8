"""One training run from its description to its results: built, iterated chunk by chunk, recorded, saved, continued."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from tremble.agent import Agent
from tremble.core import Clock, JaxEnv, Stream, stream_key
from tremble.dist import ReturnDist
from tremble.envs import JAX_ENVS
from tremble.learn import learn
from tremble.presets import make
from tremble.replay import draw_sample
from tremble.settings import SettingsError, describe, nearest, override
from tremble.training import checkpoint, compiled
from tremble.training.compiled import TrainState
from tremble.training.interrupt import deferred_interrupt

DEFAULT_CHUNK = 1000
"""Steps per compiled call. It changes how often progress shows, and nothing else."""
SAVE_SECONDS = float(os.environ.get("TREMBLE_SAVE_SECONDS", "15"))
"""How often a run with a directory is saved."""


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines a run's numbers, as JSON-ready data."""

    agent: str
    env: str
    steps: int
    seed: int = 0
    domain: str = "nchain"
    agent_options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    record_every: int = 500

    def __post_init__(self) -> None:
        """Refuse nonsense before anything is compiled."""
        if self.steps < 1:
            raise SettingsError(f"steps must be at least 1, got {self.steps}")
        if self.record_every < 1:
            raise SettingsError(f"record_every must be at least 1, got {self.record_every}")
        if not 0 <= self.seed < 2**31:
            raise SettingsError(f"seed must be between 0 and 2^31 - 1, got {self.seed}")

    def build(self) -> tuple[Agent, JaxEnv]:
        """The agent and the environment."""
        if self.env not in JAX_ENVS:
            raise SettingsError(f"there is no environment {self.env!r}; {nearest(self.env, JAX_ENVS)}")
        env = override(JAX_ENVS[self.env](), self.env_options)  # type: ignore[type-var]
        return make(self.agent, self.domain, **dict(self.agent_options)), env

    def describe(self) -> dict[str, Any]:
        """The full settings behind the names, for people and for comparing two runs."""
        agent, env = self.build()
        return {
            "agent": self.agent,
            "env": self.env,
            "steps": self.steps,
            "seed": self.seed,
            "record_every": self.record_every,
            "agent_settings": describe(agent),
            "env_settings": describe(env),  # type: ignore[arg-type]
        }


class Diagnosis(eqx.Module):
    """A look inside the learner at one moment."""

    atoms: Float[Array, "*runs actions atoms"]
    """Predicted return distributions at the start state."""
    scores: Float[Array, "*runs actions"]
    """What the criterion makes of them, with the draw of that step."""
    numbers: dict[str, Num[Array, "*runs"]]
    """Scalars for the metrics table."""


def diagnose(
    agent: Agent, env: JaxEnv, seed: Int[Array, ""], state: TrainState, t: Int[Array, ""], learning: bool
) -> Diagnosis:
    """Look at the state after ``t`` steps without changing it."""
    clock = Clock(t, agent.updates_before(t), state.episodes, t, agent.start_steps)
    noise = agent.draw_act(stream_key(seed, Stream.ACT, t), env.n_actions).criterion
    dist = agent.predict(state.learner.params, env.observe(env.reset(stream_key(seed, Stream.RESET, t))))
    numbers: dict[str, Any] = {
        "updates": clock.updates,
        "episodes": state.episodes,
        "epsilon": agent.chooser.epsilon(clock),
        **agent.behaviour_criterion.gauges(noise, clock),
    }
    if learning:
        key = stream_key(seed, Stream.DIAGNOSE, t)
        batch = compiled.as_batch(env, state.replay.sample(draw_sample(key, agent.batch_size), t))
        _, info = learn(agent, state.learner, batch, agent.draw_learn(key), clock)
        numbers |= {
            "loss": info.loss,
            "gradient_norm": info.gradient_norm,
            "crossing_rate": info.crossing_rate,
            "selection_changed": info.selection_changed,
        }
    return Diagnosis(dist.atoms, agent.behaviour_criterion.score(dist, noise, clock), numbers)


@partial(jax.jit, static_argnums=(5,))
def _diagnose_single(agent, env, seed, state, t, learning):  # type: ignore[no-untyped-def]
    return diagnose(agent, env, seed, state, t, learning)


@partial(jax.jit, static_argnums=(5,))
def _diagnose_many(agents, envs, seeds, states, t, learning):  # type: ignore[no-untyped-def]
    return jax.vmap(lambda a, e, s, x: diagnose(a, e, s, x, t, learning))(agents, envs, seeds, states)


@dataclass
class Moment:
    """What `iterate` yields: the state after ``t`` steps, what happened since the last, a look inside if due."""

    t: int
    state: TrainState
    log: dict[str, np.ndarray]
    diagnosis: Diagnosis | None


def iterate(
    agent: Agent,
    env: JaxEnv,
    seed: Any,
    steps: int,
    record_every: int,
    chunk: int = DEFAULT_CHUNK,
    start: tuple[int, TrainState] | None = None,
) -> Iterator[Moment]:
    """Train, yielding at every chunk's end. With a vector of seeds, agent and env are stacks of as many runs.

    Chunks end at multiples of ``chunk`` and ``record_every``, where learning starts, and at the last step.
    """
    many = np.ndim(seed) == 1
    seed = jnp.asarray(seed, jnp.int32)
    make_state, run, look = (
        (compiled.init_many, compiled.chunk_many, _diagnose_many)
        if many
        else (compiled.init_single, compiled.chunk_single, _diagnose_single)
    )
    t, state = start if start else (0, make_state(agent, env, seed, min(agent.memory_size, steps)))
    while t < steps:
        ends = [(t // size + 1) * size for size in (chunk, record_every)] + [steps]
        if t < agent.start_steps:
            ends.append(agent.start_steps)
        end = min(ends)
        learning = t >= agent.start_steps
        state, log = run(agent, env, seed, state, jnp.asarray(t, jnp.int32), end - t, learning)
        t = end
        diagnosis = None
        if t % record_every == 0 or t == steps:
            diagnosis = jax.device_get(look(agent, env, seed, state, jnp.asarray(t, jnp.int32), t > agent.start_steps))
        happened = jax.device_get({f.name: getattr(log, f.name) for f in dataclasses.fields(log)})
        yield Moment(t, state, happened, diagnosis)


@dataclass
class Record:
    """The results of one run so far."""

    log: dict[str, list[np.ndarray]] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    atoms: list[np.ndarray] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)

    def add(self, moment: Moment, run: int | None = None) -> None:
        """Take in a moment; ``run`` picks one of several stacked runs."""

        def pick(x: Any) -> Any:
            return x if run is None or np.ndim(x) == 0 else x[run]

        for name, values in moment.log.items():
            self.log.setdefault(name, []).append(np.asarray(pick(values)))
        if moment.diagnosis is None:
            return
        since = int(self.rows[-1]["step"]) if self.rows else 0
        recent = {name: np.concatenate(parts)[since : moment.t] for name, parts in self.log.items()}
        ended = np.flatnonzero(recent["done"])
        row = {"step": float(moment.t)}
        row |= {name: float(pick(value)) for name, value in moment.diagnosis.numbers.items()}
        row["reward_per_episode"] = float(recent["reward"].sum() / max(len(ended), 1))
        row["optimal_share"] = float(recent["optimal"].mean())
        row["behaviour_changed"] = float(1.0 - recent["greedy"].mean())
        self.rows.append(row)
        self.atoms.append(np.asarray(pick(moment.diagnosis.atoms)))
        self.scores.append(np.asarray(pick(moment.diagnosis.scores)))

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Everything but the table, by group."""
        log = {name: np.concatenate(parts) for name, parts in self.log.items()}
        snapshots = {"atoms": np.stack(self.atoms), "scores": np.stack(self.scores)} if self.atoms else {}
        return {"log": log, "snapshots": snapshots}

    @staticmethod
    def restore(path: Path, rows: list[dict[str, float]]) -> Record:
        """The record inside a saved run."""
        log = {name: [array] for name, array in checkpoint.load_group(path, "log").items()}
        snapshots = checkpoint.load_group(path, "snapshots")
        return Record(log, rows, list(snapshots.get("atoms", [])), list(snapshots.get("scores", [])))


@dataclass(frozen=True)
class TrainedAgent:
    """An agent with its parameters."""

    agent: Agent
    params: Any
    obs_shape: tuple[int, ...]

    def distribution(self, obs: Any) -> ReturnDist:
        """Predicted return distribution of every action: ``atoms[actions, atoms]`` for one observation."""
        obs = jnp.asarray(obs, jnp.float32)
        if obs.shape != self.obs_shape:
            raise ValueError(f"expected an observation of shape {self.obs_shape}, got {obs.shape}")
        return self.agent.predict(self.params, obs)

    def act(self, obs: Any) -> int:
        """The action of the highest expected return."""
        return int(jnp.argmax(self.distribution(obs).mean()))


@dataclass(frozen=True)
class Run:
    """A finished run: the agent, what it did, and how it learned."""

    spec: RunSpec
    agent: TrainedAgent
    log: dict[str, np.ndarray]
    """One entry per step: state_index, action, reward, done, optimal, greedy."""
    snapshots: dict[str, np.ndarray]
    """One entry per row of `metrics`: atoms[actions, n] and scores[actions] at the start state."""
    rows: list[dict[str, float]]

    @property
    def metrics(self) -> Any:
        """A pandas DataFrame with a row every ``record_every`` steps."""
        import pandas as pd

        return pd.DataFrame(self.rows).astype({"step": int, "updates": int, "episodes": int})

    @property
    def optimal_count(self) -> int:
        """Steps whose action the environment counts as optimal."""
        return int(self.log["optimal"].sum())


def finish(spec: RunSpec, agent: Agent, env: JaxEnv, params: Any, record: Record) -> Run:
    """Bundle what a run left."""
    obs_shape = tuple(jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0)))).shape)
    groups = record.arrays()
    return Run(spec, TrainedAgent(agent, params, obs_shape), groups["log"], groups["snapshots"], record.rows)


def train(
    agent: str,
    env: str,
    *,
    steps: int,
    seed: int = 0,
    out: str | Path | None = None,
    domain: str = "nchain",
    env_options: dict[str, Any] | None = None,
    record_every: int = 500,
    chunk: int = DEFAULT_CHUNK,
    on_progress: Callable[[int, dict[str, float]], None] | None = None,
    **agent_options: Any,
) -> Run:
    """Train a named agent on a named environment and return the run.

    With ``out``, the run is saved there as it goes; the same call continues it after an interruption, with the same
    numbers as if there had been none. Further keyword arguments change the agent's settings (``delta_0=100``).
    """
    spec = RunSpec(agent, env, steps, seed, domain, agent_options, env_options or {}, record_every)
    built, built_env = spec.build()
    directory = Path(out) if out is not None else None
    start, record = (None, Record()) if directory is None else _continue(directory, spec, built, built_env)
    t, state = start if start else (0, None)
    last_save, saved = time.monotonic(), True
    try:
        with deferred_interrupt() as interrupted:
            for moment in iterate(built, built_env, seed, steps, record_every, chunk, start):
                t, state, saved = moment.t, moment.state, False
                record.add(moment)
                if on_progress:
                    on_progress(t, record.rows[-1] if record.rows else {})
                if directory is not None and time.monotonic() - last_save > SAVE_SECONDS:
                    _save(directory, spec, t, state, record)
                    last_save, saved = time.monotonic(), True
                if interrupted():
                    raise KeyboardInterrupt
    finally:
        # Also on Ctrl-C and on errors: whole chunks are kept. A state that a chunk has begun to consume is gone.
        if directory is not None and state is not None and not saved and not _consumed(state):
            _save(directory, spec, t, state, record)
    assert state is not None
    return finish(spec, built, built_env, state.learner.params, record)


def _consumed(state: TrainState) -> bool:
    return any(isinstance(x, jax.Array) and x.is_deleted() for x in jax.tree.leaves(state))


def _save(directory: Path, spec: RunSpec, t: int, state: TrainState, record: Record) -> None:
    described = spec.describe()
    meta = {"spec": dataclasses.asdict(spec), "settings": described, "step": t, "rows": record.rows}
    checkpoint.save(directory / "state.safetensors", {"state": jax.device_get(state), **record.arrays()}, meta)
    checkpoint.save(directory / "weights.safetensors", {"params": jax.device_get(state.learner.params)}, described)
    checkpoint.write_text(directory / "config.json", json.dumps(described, indent=2) + "\n")
    checkpoint.write_text(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in record.rows))


def _continue(
    directory: Path, spec: RunSpec, agent: Agent, env: JaxEnv
) -> tuple[tuple[int, TrainState] | None, Record]:
    """Pick up a run saved in this directory, or start one."""
    path = directory / "state.safetensors"
    if directory.exists() and not directory.is_dir():
        raise checkpoint.CheckpointError(f"{directory} is a file; give a directory")
    if not path.exists():
        return None, Record()
    meta = checkpoint.read_meta(path)
    here, there = json.loads(json.dumps(spec.describe())), meta.get("settings", {})
    if here != there:
        flat_here, flat_there = _flatten(here), _flatten(there)
        names = flat_here.keys() | flat_there.keys()
        different = sorted(n for n in names if flat_here.get(n) != flat_there.get(n))
        raise checkpoint.CheckpointError(
            f"{directory} holds a run with other settings (different: {', '.join(different)}). "
            "Choose another directory, or repeat the settings to continue it."
        )
    like = jax.eval_shape(lambda: compiled.init(agent, env, jnp.asarray(0), min(agent.memory_size, spec.steps)))
    state = checkpoint.load(path, {"state": like})["state"]
    return (int(meta["step"]), jax.tree.map(jnp.asarray, state)), Record.restore(path, meta["rows"])


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
