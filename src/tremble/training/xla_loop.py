"""A run inside XLA, chunk by chunk, and the record of what happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tremble.agent import Agent
from tremble.core import Clock, JaxEnv, RandomStream, stream_key
from tremble.envs.encoding import Encoder
from tremble.replay import draw_sample
from tremble.training import xla_chunk as compiled
from tremble.training.checkpoint import Contents
from tremble.training.diagnosis import Diagnosis, diagnose
from tremble.training.xla_chunk import TrainState

DEFAULT_CHUNK = 1000
"""Steps per compiled call. It changes how often progress shows, and nothing else."""


def look(
    agent: Agent, env: JaxEnv, seed: Int[Array, ""], state: TrainState, t: Int[Array, ""], learning: bool
) -> Diagnosis:
    """Look at the state after ``t`` steps without changing it."""
    clock = Clock(t, agent.learning.updates_before(t), state.episodes, t, agent.learning.start_steps)
    batch = None
    if learning:
        noise = draw_sample(stream_key(seed, RandomStream.DIAGNOSE, t), agent.learning.batch_size)
        batch = compiled.as_batch(env, state.replay.sample(noise, t))
    obs = env.observe(env.reset(stream_key(seed, RandomStream.RESET, t)))
    return diagnose(agent, state.learner, seed, obs, batch, clock)


@partial(jax.jit, static_argnums=(5,))
def _look_single(agent, env, seed, state, t, learning):  # type: ignore[no-untyped-def]
    return look(agent, env, seed, state, t, learning)


@partial(jax.jit, static_argnums=(5,))
def _look_many(agents, envs, seeds, states, t, learning):  # type: ignore[no-untyped-def]
    return jax.vmap(lambda a, e, s, x: look(a, e, s, x, t, learning))(agents, envs, seeds, states)


def encoder_of(env: JaxEnv) -> Encoder:
    """The encoder of the same environment under Gymnasium (`JaxGymEnv`)."""
    seen = jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0))))
    return Encoder("box", tuple(seen.shape), "uint8" if seen.dtype in (jnp.bool_, jnp.uint8) else "float32")


@dataclass
class ChunkResult:
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
    stops: Sequence[int] = (DEFAULT_CHUNK,),
    start: tuple[int, TrainState] | None = None,
) -> Iterator[ChunkResult]:
    """Train, yielding at every chunk's end. With a vector of seeds, agent and env are stacks of as many runs.

    Chunks end at multiples of ``record_every`` and of each of ``stops``, where learning starts, and at the last step.
    """
    many = np.ndim(seed) == 1
    seed = jnp.asarray(seed, jnp.int32)
    make_state, run, look_inside = (
        (compiled.init_many, compiled.chunk_many, _look_many)
        if many
        else (compiled.init_single, compiled.chunk_single, _look_single)
    )
    t, state = start if start else (0, make_state(agent, env, seed, min(agent.memory_size, steps)))
    while t < steps:
        ends = [(t // size + 1) * size for size in (*stops, record_every)] + [steps]
        if t < agent.learning.start_steps:
            ends.append(agent.learning.start_steps)
        end = min(ends)
        learning = t >= agent.learning.start_steps
        state, log = run(agent, env, seed, state, jnp.asarray(t, jnp.int32), end - t, learning)
        t = end
        diagnosis = None
        if t % record_every == 0 or t == steps:
            now = jnp.asarray(t, jnp.int32)
            diagnosis = jax.device_get(look_inside(agent, env, seed, state, now, t > agent.learning.start_steps))
        happened = jax.device_get({f.name: getattr(log, f.name) for f in dataclasses.fields(log)})
        yield ChunkResult(t, state, happened, diagnosis)


@dataclass
class Record:
    """The results of one run so far."""

    log: dict[str, list[np.ndarray]] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    atoms: list[np.ndarray] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)

    def add(self, moment: ChunkResult, run: int | None = None) -> None:
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
    def restore(log: dict[str, np.ndarray], snapshots: dict[str, np.ndarray], rows: list[dict[str, float]]) -> Record:
        """The record inside a saved run."""
        parts = {name: [array] for name, array in log.items()}
        return Record(parts, rows, list(snapshots.get("atoms", [])), list(snapshots.get("scores", [])))


class XlaLoop:
    """A run inside XLA, in the form that `tremble.training.run` drives."""

    def __init__(self, agent: Agent, env: JaxEnv, seed: int, steps: int, record_every: int, stops: Sequence[int]):
        """Before the first step; compiled calls end at multiples of ``record_every`` and of each of ``stops``."""
        self.agent, self.env, self.seed, self.steps = agent, env, seed, steps
        self.record_every, self.stops = record_every, stops
        self.t, self.record_so_far = 0, Record()
        self.train_state: TrainState | None = None
        self.finished: list[tuple[int, float, int]] = []
        self._moments: Iterator[ChunkResult] | None = None

    @property
    def params(self) -> Any:
        """The online parameters."""
        assert self.train_state is not None
        return self.train_state.learner.params

    @property
    def encoder(self) -> Encoder:
        """What makes a Gymnasium environment's observations those of the run."""
        return encoder_of(self.env)

    def advance(self, until: int) -> None:
        """Run compiled calls until ``until``, which is where one of them ends."""
        if self._moments is None:
            start = None if self.train_state is None else (self.t, self.train_state)
            self._moments = iterate(self.agent, self.env, self.seed, self.steps, self.record_every, self.stops, start)
        while self.t < until:
            moment = next(self._moments)
            self.t, self.train_state = moment.t, moment.state
            self.record_so_far.add(moment)

    def record(self) -> dict[str, Any]:
        """The newest row of the metrics."""
        return self.record_so_far.rows[-1]

    @property
    def intact(self) -> bool:
        """Whether there is a state to save: none before the first step, nor while a call is consuming it."""
        leaves = jax.tree.leaves(self.train_state)
        return bool(leaves) and not any(isinstance(x, jax.Array) and x.is_deleted() for x in leaves)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pytrees and JSON-ready facts from which `load` goes on."""
        trees = {"state": jax.device_get(self.train_state), **self.record_so_far.arrays()}
        return trees, {"t": self.t, "rows": self.record_so_far.rows}

    def load(self, contents: Contents) -> bool:
        """Go on from a saved state; always exactly."""
        facts, capacity = contents.meta["facts"], min(self.agent.memory_size, self.steps)
        like = jax.eval_shape(lambda: compiled.init(self.agent, self.env, jnp.asarray(0), capacity))
        self.t = int(facts["t"])
        self.train_state = jax.tree.map(jnp.asarray, contents.tree("state", like))
        self.record_so_far = Record.restore(contents.group("log"), contents.group("snapshots"), facts["rows"])
        return True
