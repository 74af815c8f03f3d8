"""Training inside XLA, chunk by chunk, and the record of what happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tremble.agent import Agent
from tremble.core import Clock, JaxEnv, RandomStream, knows_optimal, stream_key
from tremble.envs.encoding import Actions, Encoder
from tremble.replay import Replay, draw_sample, readable
from tremble.training import xla_chunk as compiled
from tremble.training.checkpoint import Contents
from tremble.training.diagnosis import Diagnosis, diagnose
from tremble.training.loop import DEFAULT_CHUNK, Count, EpisodeCounter, EpisodeState, Loop, next_stop, or_nan, or_none
from tremble.training.machine import require_room, too_large
from tremble.training.xla_chunk import StepLog, TrainState


@jax.jit
def jit_diagnose(
    agent: Agent, env: JaxEnv, seed: Int[Array, "*runs"], state: TrainState, t: Int[Array, ""]
) -> Diagnosis:
    """Diagnose the state after ``t`` steps without changing it; `over_runs` with a vector of seeds."""

    def one(agent: Agent, env: JaxEnv, seed: Int[Array, ""], state: TrainState) -> Diagnosis:
        clock = Clock(t, agent.learning.updates_before(t), state.episodes, t, agent.learning.start_steps)
        noise = draw_sample(stream_key(seed, RandomStream.DIAGNOSE, t), agent.learning.batch_size)
        batch = compiled.as_batch(env, state.replay.sample(noise, t))
        obs = env.observe(env.reset(stream_key(seed, RandomStream.RESET, t)))
        return diagnose(agent, state.learner, seed, obs, batch, clock)

    return compiled.over_runs(seed, one)(agent, env, seed, state)


def encoder_of(env: JaxEnv) -> Encoder:
    """The encoder of the same environment under Gymnasium (`JaxGymEnv`)."""
    seen = jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0))))
    kind = seen.dtype.name
    return Encoder("box", tuple(seen.shape), kind if kind in ("bool", "uint8") else "float32")


class CompiledRun:
    """The compiled calls of one run; with a vector of seeds, of as many runs whose agents and envs are stacked."""

    def __init__(self, agent: Agent, env: JaxEnv, seed: Any, steps: int):
        """Nothing is computed yet; replay has no room for more than ``steps`` transitions."""
        self.agent, self.env, self.seed = agent, env, jnp.asarray(seed, jnp.int32)
        self.capacity = min(agent.memory_size, steps)
        self.replay_bytes = self._replay_bytes()
        """Bytes that replay takes from the first step on, in all runs together."""
        if jax.default_backend() == "cpu":
            require_room(agent.memory_size, self.capacity, self.replay_bytes)

    def _replay_bytes(self) -> int:
        def replay(agent: Agent, env: JaxEnv, seed: Any) -> Replay:
            return compiled.init_replay(agent, env, env.reset(stream_key(seed, RandomStream.RESET)), self.capacity)

        shapes = jax.eval_shape(compiled.over_runs(self.seed, replay), self.agent, self.env, self.seed)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))

    def init(self) -> TrainState:
        """The state before the first step."""
        try:
            return jax.block_until_ready(compiled.jit_init(self.agent, self.env, self.seed, self.capacity))
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise too_large(self.agent.memory_size, self.capacity, self.replay_bytes) from error

    def advance(self, state: TrainState, t: int, until: int) -> tuple[TrainState, int, dict[str, np.ndarray]]:
        """One compiled call, which consumes the state: new state, its step, and the log of the steps between.

        It ends at ``until``, or earlier where learning starts: steps before and after are different programs.
        """
        start = self.agent.learning.start_steps
        end = min(until, start) if t < start else until
        now = jnp.asarray(t, jnp.int32)
        state, log = compiled.jit_chunk(self.agent, self.env, self.seed, state, now, end - t, t >= start)
        return state, end, jax.device_get({f.name: getattr(log, f.name) for f in dataclasses.fields(log)})

    def diagnose(self, state: TrainState, t: int) -> Diagnosis:
        """The diagnosis of the state after ``t`` steps, at least one."""
        return jax.device_get(jit_diagnose(self.agent, self.env, self.seed, state, jnp.asarray(t, jnp.int32)))


@dataclass
class ChunkResult:
    """One chunk of `iterate`: the state after ``t`` steps, the log since the last one, a diagnosis where due."""

    t: int
    state: TrainState
    log: dict[str, np.ndarray]
    diagnosis: Diagnosis | None


def iterate(
    agent: Agent, env: JaxEnv, seed: Any, steps: int, record_every: int, stops: Sequence[int] = (DEFAULT_CHUNK,)
) -> Iterator[ChunkResult]:
    """Train, yielding at every chunk's end. With a vector of seeds, agent and env are stacks of as many runs.

    Chunks end at multiples of ``record_every`` and of each of ``stops``, where learning starts, and at the last step.
    """
    run = CompiledRun(agent, env, seed, steps)
    t, state = 0, run.init()
    while t < steps:
        state, t, log = run.advance(state, t, next_stop(t, steps, (*stops, record_every)))
        due = t % record_every == 0 or t == steps
        yield ChunkResult(t, state, log, run.diagnose(state, t) if due else None)


@dataclass(frozen=True)
class Recent:
    """Counts since the last row of the metrics."""

    steps: Count = 0
    episodes: Count = 0
    optimal: Count = 0
    greedy: Count = 0


@dataclass(frozen=True)
class XlaFacts:
    """What a checkpoint of an `XlaLoop` holds besides arrays."""

    t: Count
    recent: Recent
    recent_reward: float | None
    """Sum of rewards since the last row; None where it is not finite, as everywhere in files."""
    episodes: EpisodeState


class Record:
    """What happened in one run so far: episodes, rows of the metrics, snapshots, and in some environments all steps.

    Steps are kept where the environment lists its observations, which makes them the data of a study. Elsewhere a run
    of millions of steps would keep and save all of them for nothing.
    """

    def __init__(self, env: JaxEnv) -> None:
        """Before the first step in such an environment."""
        self._knows_optimal, self._keeps_steps = knows_optimal(env), env.observation_table is not None
        self.rows: list[dict[str, Any]] = []
        self.episodes = EpisodeCounter(1)
        self._t, self._recent, self._recent_reward = 0, Recent(), 0.0
        self._steps: dict[str, list[np.ndarray]] = {}
        self._snapshots: dict[str, list[np.ndarray]] = {"atoms": [], "scores": []}

    def add(self, result: ChunkResult, run: int | None = None) -> None:
        """Add a chunk; ``run`` picks one of several stacked runs."""

        def pick(x: Any) -> Any:
            return x if run is None or np.ndim(x) == 0 else x[run]

        self.add_log({name: np.asarray(pick(values)) for name, values in result.log.items()})
        if result.diagnosis is not None:
            self.add_row(jax.tree.map(pick, result.diagnosis))

    def add_log(self, log: dict[str, np.ndarray]) -> None:
        """Add the steps of a chunk."""
        if self._keeps_steps:
            for name, values in log.items():
                self._steps.setdefault(name, []).append(values)
        for reward, done in zip(log["reward"].tolist(), log["done"].tolist(), strict=True):
            self._t += 1
            self._recent_reward += reward  # one by one: the same sum for chunks of any length
            self.episodes.add(0, self._t, reward, done > 0)
        before = self._recent
        self._recent = Recent(
            before.steps + len(log["reward"]),
            before.episodes + int(np.count_nonzero(log["done"])),
            before.optimal + int(np.count_nonzero(log["optimal"])),
            before.greedy + int(np.count_nonzero(log["greedy"])),
        )

    def add_row(self, diagnosis: Diagnosis, final: bool = False) -> dict[str, Any]:
        """Add a row of the metrics and a snapshot, at the end of the newest chunk; ``final`` as for `Loop.record`."""
        recent = self._recent
        row: dict[str, Any] = {"step": self._t}
        row |= {name: float(value) for name, value in diagnosis.numbers.items()}
        row["reward_per_episode"] = self._recent_reward / max(recent.episodes, 1)
        if self._knows_optimal:
            row["optimal_share"] = recent.optimal / recent.steps
        row |= self.episodes.row(final)
        row["behaviour_changed"] = 1.0 - recent.greedy / recent.steps
        self.rows.append(row)
        self._snapshots["atoms"].append(np.asarray(diagnosis.atoms))
        self._snapshots["scores"].append(np.asarray(diagnosis.scores))
        if not final:
            self._recent, self._recent_reward = Recent(), 0.0
        return row

    def step_log(self) -> dict[str, np.ndarray]:
        """The fields of `StepLog`, one entry per step; empty where steps are not kept."""
        for name, parts in self._steps.items():
            self._steps[name] = [np.concatenate(parts)]
        return {name: whole for name, (whole,) in self._steps.items()}

    def snapshots(self) -> dict[str, np.ndarray]:
        """One entry per row: atoms[actions, n] and scores[actions] at a start state."""
        return {name: np.stack(parts) for name, parts in self._snapshots.items() if parts}

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Steps and snapshots, by group."""
        return {"log": self.step_log(), "snapshots": self.snapshots()}

    def facts(self) -> XlaFacts:
        """What `load` needs besides `arrays`."""
        return XlaFacts(self._t, self._recent, or_none(self._recent_reward), self.episodes.state())

    def load(self, facts: XlaFacts, log: dict[str, np.ndarray], snapshots: dict[str, np.ndarray]) -> None:
        """Continue from `facts` and `arrays`; the rows so far are elsewhere."""
        names = {field.name for field in dataclasses.fields(StepLog)} if self._keeps_steps and facts.t else set()
        if log.keys() != names or any(array.shape != (facts.t,) for array in log.values()):
            raise ValueError(f"the log of steps does not hold {', '.join(sorted(names))} for each of {facts.t} steps")
        self._t, self._recent, self._recent_reward = facts.t, facts.recent, or_nan(facts.recent_reward)
        self._steps = {name: [array] for name, array in log.items()}
        self._snapshots = {name: list(snapshots.get(name, [])) for name in self._snapshots}
        self.episodes.load(facts.episodes)


def _memory(state: TrainState) -> Replay:
    return state.replay


class XlaLoop(Loop):
    """A run inside XLA as a `Loop`; environments written in JAX and plain replay only."""

    def __init__(self, agent: Agent, env: JaxEnv, seed: int, steps: int):
        """Before the first step."""
        self.agent, self.env = agent, env
        self.encoder, self.actions = encoder_of(env), Actions.numbered(env.n_actions)
        self.t = 0
        self.train_state: TrainState | None = None
        self._run, self._record = CompiledRun(agent, env, seed, steps), Record(env)
        # Traced now, so that a network that does not fit is reported before anything is written.
        self._empty: TrainState = jax.eval_shape(lambda: compiled.init(agent, env, jnp.asarray(0), self._run.capacity))
        """The state with shapes in place of arrays."""
        self.finished = self._record.episodes.finished

    @property
    def params(self) -> Any:
        """The online parameters."""
        return self._state().learner.params

    def _state(self) -> TrainState:
        """The state, which is made when it is first asked for: perhaps `load` brings another."""
        if self.train_state is None:
            self.train_state = self._run.init()
        return self.train_state

    @property
    def replay_bytes(self) -> int:
        """Bytes that replay takes from the first step on."""
        return self._run.replay_bytes

    @property
    def memory(self) -> str:
        """Number of transitions in replay and the bytes they take."""
        return f"replay: {self._run.capacity:,} transitions, {readable(self._run.replay_bytes)}"

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        """As `Loop.advance`: compiled calls of chunks."""
        while self.t < until and not stop():
            state = self._state()
            self.resumable = False  # the call consumes the state
            self.train_state, self.t, log = self._run.advance(state, self.t, until)
            self._record.add_log(log)
            self.resumable = True

    def record(self, final: bool = False) -> dict[str, Any]:
        """As `Loop.record`."""
        assert self.train_state is not None, "advance or load first"
        return self._record.add_row(self._run.diagnose(self.train_state, self.t), final)

    def step_log(self) -> dict[str, np.ndarray]:
        """The fields of `StepLog`, one entry per step."""
        return self._record.step_log()

    def snapshots(self) -> dict[str, np.ndarray]:
        """One entry per row of the metrics: atoms[actions, n] and scores[actions] at a start state."""
        return self._record.snapshots()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pytrees and JSON-ready facts from which `load` continues."""
        state = jax.device_get(self.train_state)
        assert state is not None, "advance or load first"
        trees = {"state": eqx.tree_at(_memory, state, state.replay.first(self.t)), **self._record.arrays()}
        return trees, dataclasses.asdict(self._record.facts())

    def load(self, contents: Contents) -> bool:
        """Continue from a saved state; always exactly."""
        facts = contents.record("facts", XlaFacts)
        self.t = facts.t
        filled = jax.eval_shape(lambda r: r.first(self.t), self._empty.replay)
        saved = contents.tree("state", eqx.tree_at(_memory, self._empty, filled))
        replay = saved.replay.with_capacity(self._run.capacity)
        self.train_state = jax.tree.map(jnp.asarray, eqx.tree_at(_memory, saved, replay))
        self._record.load(facts, contents.group("log"), contents.group("snapshots"))
        return True
