"""Training beside any Gymnasium environment: the loop runs here, acting and learning are compiled.

The order within step t is that of the compiled loop: act; step the environment while learning from the transitions
before t; store transition t. With n environments a step brings up to n transitions, numbered in the order of the
environments; all of them see the parameters before the step, and each may trigger a round of learning.
An agent with ``async_learning`` acts by the parameters from before the newest round instead, while that round runs,
and priorities come one update later.
All randomness of the agent is a function of (seed, stream, number of the transition).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tremble.agent import ActorState, Agent, LearnerState
from tremble.core import Clock, Noise, RandomStream, Transition, stream_key
from tremble.envs.gym import Environment, EnvironmentFaultError, Observation, Outcome
from tremble.replay import (
    Accumulator,
    FrameReplay,
    NumpyReplay,
    Rows,
    draw_sample,
    frame_memory_estimate,
    memory_estimate,
)
from tremble.replay.frame_store import FrameStore
from tremble.settings import SettingsError
from tremble.training.async_learner import AsyncLearner
from tremble.training.checkpoint import Contents
from tremble.training.compiled_calls import BLOCK, always_fresh, calls_for, draw_acts, draw_learns, init, look
from tremble.training.pending_priorities import PendingPriorities


def env_seed(seed: int, stream: RandomStream, *numbers: int) -> int:
    """A seed for a Gymnasium environment, far from those of other streams and numbers."""
    return int(np.random.SeedSequence([seed, int(stream), *numbers]).generate_state(1)[0])


@dataclasses.dataclass
class Recent:
    """What happened since the last row of the metrics, and in the episodes under way."""

    returns: list[float] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    steps: int = 0
    greedy: int = 0


class GymLoop:
    """A run in progress. `state` and `load` carry all of it; parameters are functions of them."""

    def __init__(self, agent: Agent, env: Environment, seed: int, steps: int, replay_file: Path | None = None):
        """Before the first step; nothing is allocated for longer runs than ``steps``.

        ``replay_file`` is where the pictures of replay go, if they shall not stay in memory.
        """
        # Numbers become arrays once: a Python float would be sent to the device at every call.
        self.agent = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), agent)
        self.settings, self.env, self.seed = agent, env, seed
        n = env.n_envs
        if (size := n * agent.replay.rollout) and size != agent.learning.batch_size:
            raise SettingsError(
                f"a rollout of {agent.replay.rollout} steps in {n} environments is a batch of {size}, not of "
                f"{agent.learning.batch_size}: use agent.fitted_to({n})"
            )
        self.t = self.episodes = self.updates = 0
        self.learned = 0
        """Rounds of learning are done for transitions before this one."""
        self.learner = init(self.agent, jnp.asarray(seed), env.encoder.shape, env.n_actions)
        self.seen: Observation | None = None
        self.start_obs = np.zeros(env.encoder.shape, env.encoder.dtype)
        self.actors = jax.tree.map(lambda x: jnp.stack([x] * n), agent.init_actor(env.n_actions))
        self._agent, agent_structure = jax.tree.flatten(self.agent)
        noise = jax.eval_shape(lambda: agent.draw_act(jax.random.key(0), env.n_actions))
        self._calls = calls_for(
            agent_structure, self._learner_structure, self._actors_structure, jax.tree.structure(noise)
        )
        self._n_params = len(jax.tree.leaves(self.params))
        params = self._learner[: self._n_params]
        self._beside = AsyncLearner(self._calls, params, agent.double) if agent.async_learning else None
        self._ranking = PendingPriorities(lag=1 if agent.async_learning else 0)
        self._seed = jnp.asarray(seed, jnp.int32)
        # Read at every step, and reading a module takes a microsecond.
        self._remembers, self._rollout, self._prioritised = (
            agent.remembers,
            agent.replay.rollout,
            agent.replay.prioritised,
        )
        self._start_steps, self._interval, self._rounds = (
            agent.learning.start_steps,
            agent.learning.update_interval,
            agent.learning.updates_per_round,
        )
        self._target_interval, self._shares = agent.learning.target_update_interval, agent.share_noise
        self._always_fresh = always_fresh(agent)
        self.accumulator = Accumulator(agent.replay.n_step, float(agent.gamma), n)
        self._steps = steps
        self._replay_file = replay_file
        self._replay: NumpyReplay | FrameReplay | None = None
        self.recent = Recent()
        self.returns, self.lengths = np.zeros(n), np.zeros(n, np.int64)
        self.finished: list[tuple[int, float, int]] = []
        """(step, return, length) of episodes that ended since this was last emptied."""
        self._acts: tuple[int, Any] = (-(10**9), None)
        self._learns: tuple[int, Any] = (-(10**9), None)

    @property
    def learner(self) -> LearnerState:
        """Parameters, their delayed copy and the optimiser's moments."""
        learner: LearnerState = jax.tree.unflatten(self._learner_structure, self._learner)
        return learner

    @learner.setter
    def learner(self, learner: LearnerState) -> None:
        self._learner, self._learner_structure = jax.tree.flatten(learner)

    @property
    def actors(self) -> ActorState:
        """What acting remembers, with a leading axis of environments."""
        actors: ActorState = jax.tree.unflatten(self._actors_structure, self._actors)
        return actors

    @actors.setter
    def actors(self, actors: ActorState) -> None:
        self._actors, self._actors_structure = jax.tree.flatten(actors)

    @property
    def params(self) -> Any:
        """The online parameters."""
        return self.learner.params

    @property
    def intact(self) -> bool:
        """Whether there is a state to save: none before the first observation, nor after an update broke off."""
        return self.seen is not None and not any(isinstance(x, jax.Array) and x.is_deleted() for x in self._learner)

    @property
    def replay(self) -> NumpyReplay | FrameReplay:
        """The memory; allocated when it is known whether the environment has masks."""
        if self._replay is None:
            parts = (self.capacity, self.example(), self.settings.replay)
            stacked = self.env.stacked
            self._replay = FrameReplay(*parts, self.env.n_envs, self._replay_file) if stacked else NumpyReplay(*parts)
        return self._replay

    @property
    def replay_bytes(self) -> int:
        """Memory that replay takes once it is full; nothing is allocated to find out."""
        if self.env.stacked:
            return frame_memory_estimate(self.capacity, self.example(), self.settings.replay, self.env.n_envs)
        return memory_estimate(self.capacity, self.example(), self.settings.replay.prioritised)

    @property
    def blocks(self) -> FrameStore | None:
        """What is too large to be saved anew every time."""
        return self.replay.frames if isinstance(self.replay, FrameReplay) else None

    @property
    def capacity(self) -> int:
        """Items that fit into replay: no more than the run can make."""
        return min(self.settings.memory_size, self._steps)

    def example(self) -> Transition:
        """A transition of zeros, as replay will hold them."""
        obs = jnp.zeros(self.env.encoder.shape, self.env.encoder.dtype)
        seen = self._begin()
        mask = None if seen.mask is None else jnp.zeros(self.env.n_actions, bool)
        zero, extra = jnp.zeros(()), self.settings.init_actor(self.env.n_actions).extra
        example = Transition(obs, jnp.zeros((), jnp.int32), zero, zero, obs, None, mask, extra)
        return jax.tree.map(np.asarray, example)

    def _begin(self) -> Observation:
        """The first observations, made on first use."""
        if self.seen is None:
            seeds = [env_seed(self.seed, RandomStream.RESET, i) for i in range(self.env.n_envs)]
            self.seen = self._guarded(lambda: self.env.start(seeds))
            self._check(self.seen.obs, "observation at the first reset")
            self.start_obs = self.seen.obs[0].copy()
        return self.seen

    def advance(self, until: int) -> None:
        """Step until at least ``until`` transitions are made."""
        self._begin()
        while self.t < until:
            self._step()

    def _step(self) -> None:
        env, seen = self.env, self._begin()
        n = env.n_envs
        # The number each environment's transition will have; where there will be none, the number does not matter.
        numbers = self.t + np.maximum(np.cumsum(~env.resetting) - 1, 0)
        first, block = self._act_block(n)
        choices, self._actors, drawn = self._calls.act(
            self._agent,
            self._beside.late if self._beside else self._learner[: self._n_params],
            self._actors,
            seen.obs,
            seen.mask,
            block,
            np.array([self.episodes, *(numbers - first), *numbers], np.int32),
            self._seed,
        )
        actions, greedy = np.asarray(choices)
        env.send(actions)
        for i in np.flatnonzero(~env.resetting):
            self._learn(int(numbers[i]), drawn, int(i))
        outcome = self._guarded(env.receive)
        self._ranking.settle(self.replay)  # before an item of the batch is overwritten
        self._store(seen, actions, outcome, greedy)
        self.seen = outcome.next
        ended = (outcome.terminated | outcome.truncated) & outcome.happened
        if self._remembers:
            # Also where the call only reset: what was drawn for it belongs to no episode.
            fresh = ended | ~outcome.happened
            self.actors = eqx.tree_at(lambda a: a.fresh, self.actors, jnp.asarray(fresh))

    def _store(self, seen: Observation, actions: np.ndarray, outcome: Outcome, greedy: np.ndarray) -> None:
        self._check(outcome.reward, "reward")
        self._check(outcome.final.obs, "observation")
        rollout = self._rollout
        left = self.actors.extra if self._remembers else None
        extras = None if left is None else np.asarray(left)
        if rollout and not outcome.happened.all():
            raise SettingsError(
                f"{self.env.name} resets instead of stepping (autoreset mode 'next step'), so that rollouts would have "
                "unequal lengths: use another autoreset mode, or let tremble make the environments from an id"
            )
        # Windows end with the rollout as they do at a time limit: with what follows bootstrapped.
        cut = rollout > 0 and (self.t // self.env.n_envs + 1) % rollout == 0
        for i in np.flatnonzero(outcome.happened):
            after_mask = None if outcome.final.mask is None else outcome.final.mask[i]
            terminated, truncated = bool(outcome.terminated[i]), bool(outcome.truncated[i])
            before, after = self.replay.keep(int(i), seen.obs[i], outcome.final.obs[i])
            no_future = terminated or bool(outcome.no_bootstrap[i])
            items = self.accumulator.add(
                int(i),
                before,
                actions[i],
                outcome.reward[i],
                no_future,
                truncated or cut,
                after,
                after_mask,
                None if extras is None else extras[i],
            )
            for item in items:
                self.replay.insert(item)
            self.t += 1
            self.recent.steps += 1
            self.recent.greedy += bool(greedy[i])
            self.returns[i] += float(outcome.score[i])
            self.lengths[i] += 1
            self.episodes += terminated or truncated
            if outcome.over[i]:
                self.finished.append((self.t, float(self.returns[i]), int(self.lengths[i])))
                self.recent.returns.append(float(self.returns[i]))
                self.recent.lengths.append(int(self.lengths[i]))
                self.returns[i], self.lengths[i] = 0.0, 0

    def _learn(self, t: int, drawn: Noise, i: int) -> None:
        """The round of learning that falls on transition ``t``, from the items stored so far.

        Calls return before the work is done, so the environment steps meanwhile. ``drawn[i]`` is what the criterion
        drew for the action of that transition.
        """
        if t < max(self.learned, self._start_steps) or not self.replay.ready:
            return
        self.learned = t + 1
        updates = t > 0 and t % self._interval == 0
        if t % self._target_interval == 0 and not (updates and self._always_fresh):
            n = self._n_params
            fresh = self._calls.refresh(self._agent, self._learner[:n], self._learner[n : 2 * n])
            self._learner = [*self._learner[:n], *fresh, *self._learner[2 * n :]]
        if not updates:
            return
        dispatch = self._calls.update
        if self._beside:
            self._beside.begin_round(self._learner)
            dispatch = self._beside.update
        for j in range(self._rounds):
            self._ranking.settle(self.replay)  # before the next sample
            first, noise, bits = self._learn_block(t)
            index = (t - first) * self._rounds + j
            batch, slots, layout = self._sample(bits[index], t)
            if self._shares:
                noise, index = jax.tree.map(lambda x: x[:, None], drawn), i
            numbers = np.array([index, t, self.updates, self.episodes, j], np.int32)
            self._learner, losses = dispatch(self._agent, self._learner, batch, noise, numbers, self._seed, layout)
            self.updates += 1
            if self._prioritised:
                self._ranking.add(slots, losses, self.replay.count)

    def _sample(self, bits: np.ndarray, t: int) -> tuple[Transition | Rows, np.ndarray, np.dtype[Any] | None]:
        """A batch, the slots it came from, and how its rows are laid out if it comes in rows."""
        replay, importance = self.replay, self._importance(t)
        if isinstance(replay, NumpyReplay):
            return *replay.sample_rows(bits, importance), replay.layout
        return *replay.sample(bits, importance), None

    def _importance(self, t: int) -> float:
        """The exponent of importance weights; asked only where there are any, since this runs at every step."""
        return self.settings.replay.importance_exponent(t) if self._prioritised else 1.0

    def _act_block(self, n: int) -> tuple[int, Any]:
        first, _ = self._acts
        if not first <= self.t <= first + BLOCK - n:
            self._acts = (self.t, draw_acts(self.agent, np.int32(self.seed), np.int32(self.t), self.env.n_actions))
        return self._acts

    def _learn_block(self, t: int) -> tuple[int, Any, np.ndarray]:
        length = max(1, BLOCK // self._rounds)
        first, drawn = self._learns
        if not first <= t < first + length:
            noise = draw_learns(self.agent, np.int32(self.seed), np.int32(t), length)
            drawn = (noise.criterion, np.asarray(noise.sample))
            self._learns = (t, drawn)
        return self._learns[0], drawn[0], drawn[1]

    def record(self) -> dict[str, Any]:
        """A row for the metrics: a look inside, and what happened since the last one."""
        clock = Clock(self.t, self.updates, self.episodes, self.t, self.settings.learning.start_steps)
        batch = None
        if self.t > self.settings.learning.start_steps and self.replay.ready:
            bits = np.asarray(
                draw_sample(stream_key(self.seed, RandomStream.DIAGNOSE, self.t), self.settings.learning.batch_size)
            )
            batch, _ = self.replay.sample(bits, self._importance(self.t))
        clock = jax.tree.map(lambda x: np.int32(x), clock)
        inside = jax.device_get(look(self.agent, self.learner, np.int32(self.seed), self.start_obs, batch, clock))
        recent = self.recent
        row: dict[str, Any] = {"step": self.t}
        row |= {name: float(value) for name, value in inside.numbers.items()}
        row["return"] = float(np.mean(recent.returns)) if recent.returns else None
        row["episode_length"] = float(np.mean(recent.lengths)) if recent.lengths else None
        row["behaviour_changed"] = 1.0 - recent.greedy / max(recent.steps, 1)
        row["start_value"] = float(inside.atoms.mean(-1).max())
        self.recent = Recent()
        return row

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pytrees and JSON-ready facts from which `load` goes on, bit for bit where the environment permits."""
        self._ranking.settle(self.replay)
        seen = self._begin()
        snapshots = self.env.snapshot()
        trees: dict[str, Any] = {
            "learner": jax.device_get(self.learner),
            "actors": jax.device_get(self.actors),
            "replay": self.replay.state(),
            "pending": self.accumulator.state(),
            "env": {"obs": seen.obs, "start": self.start_obs, "returns": self.returns, "lengths": self.lengths},
        }
        if seen.mask is not None:
            trees["env"]["mask"] = seen.mask
        if self._beside:
            trees["late"] = jax.device_get(self._beside.late)
        if waiting := self._ranking.state():
            trees["unranked"] = waiting
        facts: dict[str, Any] = {
            "t": self.t,
            "episodes": self.episodes,
            "updates": self.updates,
            "learned": self.learned,
            "recent": dataclasses.asdict(self.recent),
            "snapshots": None,
        }
        if snapshots is not None:
            facts["snapshots"] = [facts for facts, _ in snapshots]
            for i, (_, arrays) in enumerate(snapshots):
                trees[f"snapshot-{i}"] = arrays
        return trees, facts

    def load(self, contents: Contents) -> bool:
        """Go on from a saved state; false if the environment could not be brought back and starts new episodes."""
        facts, env = contents.meta["facts"], contents.group("env")
        self.learner = jax.tree.map(jnp.asarray, contents.tree("learner", self.learner))
        if self._beside:
            self._beside.late = jax.tree.map(jnp.asarray, contents.tree("late", self._beside.late))
        self._ranking.load(contents.group("unranked"))
        self.actors = jax.tree.map(jnp.asarray, contents.tree("actors", self.actors))
        self.t, self.episodes, self.updates = facts["t"], facts["episodes"], facts["updates"]
        self.learned = facts["learned"]
        self.recent = Recent(**facts["recent"])
        self.start_obs = env["start"]
        self.seen = Observation(env["obs"], env.get("mask"))
        self.returns, self.lengths = env["returns"].copy(), env["lengths"].copy()
        if isinstance(self.replay, FrameReplay):
            self.replay.load(contents.group("replay"), contents.blocks())
        else:
            self.replay.load(contents.group("replay"))
        self.accumulator.load(contents.group("pending"))
        if facts["snapshots"] is not None:
            saved = [(fact, contents.group(f"snapshot-{i}")) for i, fact in enumerate(facts["snapshots"])]
            there = self._guarded(lambda: self.env.rewind(saved))
            if there is not None and np.array_equal(there, self.seen.obs):
                return True
        self._restart()
        return False

    def _restart(self) -> None:
        """New episodes everywhere; what was pending of the old ones is dropped."""
        n = self.env.n_envs
        seeds = [env_seed(self.seed, RandomStream.RESET, i, self.t) for i in range(n)]
        self.seen = self._guarded(lambda: self.env.start(seeds))
        for i in range(n):
            self.accumulator.drop(i)
        self.returns[:], self.lengths[:] = 0.0, 0
        self.actors = eqx.tree_at(lambda a: a.fresh, self.actors, jnp.ones(n, bool))

    def _check(self, numbers: np.ndarray, what: str) -> None:
        if numbers.dtype != np.uint8 and not np.isfinite(numbers).all():
            bad = numbers[~np.isfinite(numbers)].ravel()[0]
            raise EnvironmentFaultError(
                f"{self.env.name} gave {bad} as {what} at step {self.t + 1}. Learning from it would spoil the "
                "parameters, so the run stops here; what came before is saved. Repair the environment and resume."
            )

    def _guarded(self, call: Any) -> Any:
        """Call into the environment; what it raises is reported with its name and the step."""
        try:
            return call()
        except (KeyboardInterrupt, EnvironmentFaultError):
            raise
        except Exception as error:
            raise EnvironmentFaultError(
                f"{self.env.name} failed at step {self.t + 1}: {type(error).__name__}: {error}"
            ) from error
