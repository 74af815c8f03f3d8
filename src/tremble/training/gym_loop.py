"""Training with any Gymnasium environment: the loop runs in Python, acting and learning are compiled.

The order within step t is that of the compiled loop: act; step the environment while learning from the transitions
before t; store transition t. With n environments a step makes up to n transitions, numbered in the order of the
environments; all of them are chosen by the parameters before the step, and each may start a round of learning.
An agent with ``async_learning`` acts by the parameters from before the newest round instead, while that round runs,
and priorities are updated one update later.
All randomness of the agent is a function of (seed, stream, number of the transition).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tremble.agent import ActorState, Agent, LearnerState
from tremble.core import Noise, RandomStream, Transition
from tremble.envs.faults import EnvironmentFaultError
from tremble.envs.gym import Environment, Observation, Outcome
from tremble.envs.masks import check_masks
from tremble.envs.running_statistics import Statistics, check_statistics
from tremble.records import check_array
from tremble.replay import (
    Accumulator,
    FrameReplay,
    NumpyReplay,
    frame_memory_estimate,
    memory_estimate,
    readable,
)
from tremble.replay.frame_store import FrameStore
from tremble.settings import SettingsError
from tremble.training import compiled_calls
from tremble.training.async_learner import AsyncLearner
from tremble.training.checkpoint import Contents
from tremble.training.compiled_calls import BLOCK, Constants, Flat, Learner, draw_acts, draw_learns
from tremble.training.loop import Count, EpisodeCounter, EpisodeState, Loop
from tremble.training.machine import require_room, too_large
from tremble.training.pending_priorities import PendingPriorities


def env_seed(seed: int, stream: RandomStream, *numbers: int) -> int:
    """A seed for a Gymnasium environment: a hash of the run's seed, the stream and the numbers."""
    return int(np.random.SeedSequence([seed, int(stream), *numbers]).generate_state(1)[0])


@contextmanager
def environment_faults(what: str) -> Iterator[None]:
    """Report any exception of the block as a fault of the environment; ``what`` begins the message."""
    try:
        yield
    except EnvironmentFaultError:
        raise
    except Exception as error:
        raise EnvironmentFaultError(f"{what}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class GymFacts:
    """What a checkpoint of a `GymLoop` holds besides arrays."""

    t: Count
    episodes: Count
    updates: Count
    learned: Count
    recent_steps: Count
    recent_greedy: Count
    episode_counter: EpisodeState
    snapshots: list[dict[str, Any]] | None
    """What environments need to be restored, besides arrays; None if they cannot be."""


class GymLoop(Loop):
    """A run with a Gymnasium environment as a `Loop`."""

    def __init__(
        self,
        agent: Agent,
        env: Environment,
        seed: int,
        steps: int,
        replay_file: Path | None = None,
        step_log: Callable[[], dict[str, np.ndarray]] | None = None,
    ):
        """Start the environments; replay has no room for more than ``steps`` transitions.

        ``replay_file`` takes the pictures of replay instead of memory. ``step_log`` returns the environment's own log.
        """
        n = env.n_envs
        if (size := n * agent.replay.rollout) and size != agent.learning.batch_size:
            raise SettingsError(
                f"a rollout of {agent.replay.rollout} steps in {n} environments is a batch of {size}, not of "
                f"{agent.learning.batch_size}: use agent.fitted_to({n})"
            )
        self.agent, self.env, self.seed = agent, env, seed
        self.encoder, self.actions, self.frames_per_step = env.encoder, env.actions, env.frames_per_step
        self.not_restorable = env.not_restorable
        self.capacity = min(agent.memory_size, -(-steps // n) * n)
        """Items that fit into replay: at most those of the run, which ends with a step of all environments."""
        self.t = self.episodes = self.updates = 0
        self.learned = 0
        """Rounds of learning are done for transitions before this one."""
        self.recent_steps = self.recent_greedy = 0
        """Transitions since the last row of the metrics, and how many of their actions were greedy."""
        self.seen = self._start()
        """The newest observations."""
        self._check(self.seen.obs, "observation at the first reset")
        self._check_mask(self.seen)
        self.start_obs = self.seen.obs[0].copy()
        self.accumulator = Accumulator(agent.replay.n_step, float(agent.gamma), n)
        self._replay_file, self._step_log = replay_file, step_log
        self._counter = EpisodeCounter(n)
        self.finished = self._counter.finished
        if replay_file is None:
            require_room(agent.memory_size, self.capacity, self.replay_bytes)

        # Numbers become arrays once: a Python float would be sent to the device at every call.
        self._arrays = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), agent)
        state = compiled_calls.init(self._arrays, jnp.asarray(seed), env.encoder.shape, env.actions.n)
        self._learner = Learner.of(state)
        actors = jax.tree.map(lambda x: jnp.stack([x] * n), agent.init_actor(env.actions.n))
        self._actors: Flat[ActorState] = Flat.of(actors)
        self._async = AsyncLearner(self._learner.params, agent.double) if agent.async_learning else None
        self._chosen: np.ndarray | None = None
        """``[2, n]``: actions of a step that failed in the environment, and whether they are the mean's."""
        self._priorities = PendingPriorities(lag=1 if agent.async_learning else 0)
        self._act_noise: tuple[int, Any] = (-(10**9), None)
        self._learn_noise: tuple[int, Any, Any] = (-(10**9), None, None)

        # Equinox modules are slow to read in Python: 1 us a field, 5 us a method. So fields are read once, and the
        # schedule is asked about many steps at a time.
        self._due: tuple[int, np.ndarray, np.ndarray] = (-(10**9), np.zeros(0, bool), np.zeros(0, bool))
        self._share_noise = agent.share_noise
        self._start_steps, self._rounds = agent.learning.start_steps, agent.learning.updates_per_round
        self._prioritised, self._rollout = agent.replay.prioritised, agent.replay.rollout
        self._in_turn = self._rounds > 1 and not self._prioritised and not self._async
        self._has_actor_state = agent.has_actor_state
        self._updates_target_always = compiled_calls.updates_target_always(agent)

    @property
    def learner(self) -> LearnerState:
        """Parameters, target parameters and the optimiser's state."""
        return self._learner.state()

    @property
    def actors(self) -> ActorState:
        """Actor states, with a leading axis of environments."""
        return self._actors.tree()

    def _start_episodes(self, where: Any) -> None:
        """Mark where the next step is the first of an episode."""
        self._actors = Flat.of(eqx.tree_at(lambda a: a.episode_start, self.actors, jnp.asarray(where)))

    @property
    def params(self) -> Any:
        """The online parameters."""
        return self._learner.params.tree()

    @cached_property
    def replay(self) -> NumpyReplay:
        """The memory; allocated on first use, so that `memory` can be shown before."""
        parts, most = (self.capacity, self._example(), self.agent.replay), self.agent.memory_size
        try:
            if self.env.stacked:
                return FrameReplay(*parts, self.env.n_envs, self._replay_file, most)
            return NumpyReplay(*parts, most)
        except MemoryError as error:
            raise too_large(most, self.capacity, self.replay_bytes) from error

    @cached_property
    def constants(self) -> Flat[Constants]:
        """What compiled calls get at every step, made once: agent, seed, frames per step and the layout of batches."""
        seed = jnp.asarray(self.seed, jnp.int32)
        return Flat.of(Constants(self._arrays, seed, self.frames_per_step, self.replay.layout))

    @property
    def replay_bytes(self) -> int:
        """Bytes that replay takes once it is full."""
        spec, most, example = self.agent.replay, self.agent.memory_size, self._example()
        if self.env.stacked:
            return frame_memory_estimate(self.capacity, example, spec, self.env.n_envs, most)
        return memory_estimate(self.capacity, example, spec.prioritised, most)

    @cached_property
    def _updates_per_call(self) -> int:
        """Updates of a round whose batches may be in memory at the same time."""
        bytes_per_batch = 2 * self._example().obs_t.nbytes * self.agent.learning.batch_size
        return max(1, compiled_calls.BURST_BYTES // bytes_per_batch)

    @property
    def memory(self) -> str:
        """Number of transitions in replay and the bytes they take once it is full; allocates nothing."""
        spec, n, nbytes = self.agent.replay, self.env.n_envs, self.replay_bytes
        kept = f"replay: {self.capacity:,} transitions"
        if spec.rollout:
            kept = f"rollouts: {spec.rollout} steps in each of {n} environments, learned from once"
        return f"{kept}, up to {readable(nbytes)}" + (f" in {self._replay_file}" if self._replay_file else "")

    @property
    def blocks(self) -> FrameStore | None:
        """The pictures of replay, which are saved in blocks."""
        return self.replay.frames

    def _example(self) -> Transition:
        """A transition of zeros with the shapes and types that replay stores."""
        obs = np.zeros(self.encoder.shape, self.encoder.dtype)
        mask = None if self.seen.mask is None else np.zeros(self.actions.n, bool)
        zero, extra = np.zeros((), np.float32), self.agent.init_actor(self.actions.n).extra
        example = Transition(obs, np.zeros((), np.int32), zero, zero, obs, None, mask, extra)
        return jax.tree.map(np.asarray, example)

    def _start(self, *numbers: int) -> Observation:
        """Start an episode in every environment; seeds are a function of the run's seed and ``numbers``."""
        seeds = [env_seed(self.seed, RandomStream.RESET, i, *numbers) for i in range(self.env.n_envs)]
        with self._faults():
            return self.env.start(seeds)

    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        """As `Loop.advance`."""
        while self.t < until and not stop():
            self._step()

    def _step(self) -> None:
        env, seen = self.env, self.seen
        n = env.n_envs
        # The number of each environment's transition; not used where the environment only resets.
        numbers = self.t + np.maximum(np.cumsum(~env.resetting) - 1, 0)
        self.resumable = False
        drawn: Noise = ()
        if self._chosen is None:
            first, block = self._act_block(n)
            params = self._async.late if self._async else self._learner.params
            counts = np.array([self.episodes, *(numbers - first), *numbers], np.int32)
            choices, self._actors, drawn = compiled_calls.act(
                self.constants, params, self._actors, seen.obs, seen.mask, block, counts
            )
            self._chosen = np.asarray(choices)
        actions, greedy = self._chosen
        env.send(actions)
        for i in np.flatnonzero(~env.resetting):
            self._learn(int(numbers[i]), drawn, int(i))
        try:
            with self._faults():
                outcome = env.receive()
            self._check(outcome.reward, "reward")
            self._check(outcome.final.obs, "observation")
            if (outcome.terminated | outcome.truncated).any():
                self._check(outcome.next.obs, "observation at a reset")
            self._check_mask(outcome.next)
        except EnvironmentFaultError:
            # What came before can be saved if the environment forgets this step: it is then made again, with the
            # actions that were chosen before learning.
            self.resumable = env.undo()
            raise
        self._priorities.apply(self.replay)  # before an item of the batch is overwritten
        self._store(seen, actions, outcome, greedy)
        self.seen, self._chosen, self.resumable = outcome.next, None, True
        if self._has_actor_state:
            # Also where the call only reset: its draw belongs to no episode.
            starts = outcome.terminated | outcome.truncated | ~outcome.happened
            self._start_episodes(starts)

    def _store(self, seen: Observation, actions: np.ndarray, outcome: Outcome, greedy: np.ndarray) -> None:
        extra = self.actors.extra if self._has_actor_state else None
        extras = None if extra is None else np.asarray(extra)
        if self._rollout and not outcome.happened.all():
            raise SettingsError(
                f"{self.env.name} resets instead of stepping (autoreset mode 'next step'), so that rollouts would have "
                "unequal lengths: use another autoreset mode, or let tremble make the environments from an id"
            )
        # Windows end with the rollout as at a time limit: they bootstrap.
        cut = self._rollout > 0 and (self.t // self.env.n_envs + 1) % self._rollout == 0
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
            self.recent_steps += 1
            self.recent_greedy += bool(greedy[i])
            self.episodes += terminated or truncated
            self._counter.add(int(i), self.t, float(outcome.score[i]), bool(outcome.over[i]))

    def _learn(self, t: int, drawn: Noise, i: int) -> None:
        """The round of learning at transition ``t``, if there is one, from the items stored so far.

        Compiled calls return before they are done, so the environment steps meanwhile. ``drawn[i]`` is the criterion's
        draw for the action of that transition.
        """
        if t < max(self.learned, self._start_steps) or not self.replay.ready:
            return
        self.learned = t + 1
        learns, updates_target = self._due_at(t)
        if updates_target and not (learns and self._updates_target_always):
            learner = self._learner
            target_params = compiled_calls.move_target(self.constants, learner.params, learner.target_params)
            self._learner = learner._replace(target_params=target_params)
        if not learns:
            return
        if self._in_turn:
            self._learn_in_turn(t, drawn, i)
            return
        update: Callable[..., tuple[Learner, Any]] = compiled_calls.update
        if self._async:
            self._async.begin_round(self._learner)
            update = self._async.update
        for j in range(self._rounds):
            self._priorities.apply(self.replay)  # before the next sample
            noise, bits, numbers = self._of_updates(t, drawn, i, j, j + 1)
            batch, slots = self.replay.sample_batch(bits[0], self._importance(t))
            self._learner, losses = update(self.constants, self._learner, batch, noise, numbers[0])
            self.updates += 1
            if self._prioritised:
                self._priorities.add(slots, losses, self.replay.count)

    def _learn_in_turn(self, t: int, drawn: Noise, i: int) -> None:
        """A round of several updates in one compiled call, or in as few as memory allows.

        Without priorities no update changes what the next one samples, so all batches are drawn first.
        """
        size = self.agent.learning.batch_size
        for start in range(0, self._rounds, self._updates_per_call):
            stop = min(self._rounds, start + self._updates_per_call)
            noise, bits, numbers = self._of_updates(t, drawn, i, start, stop)
            batch, _ = self.replay.sample_batch(bits.reshape(-1), self._importance(t))
            batches = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), batch)
            self._learner = compiled_calls.update_in_turn(self.constants, self._learner, batches, noise, numbers)
            self.updates += stop - start

    def _of_updates(self, t: int, drawn: Noise, i: int, start: int, stop: int) -> tuple[Noise, np.ndarray, np.ndarray]:
        """For updates ``start .. stop - 1`` of the round at t: the criterion's draws, bits to sample by, and numbers.

        ``numbers[updates, 5]`` are those of `compiled_calls.update`.
        """
        first, noise, bits = self._learn_block(t)
        row, n = (t - first) * self._rounds + start, stop - start
        # Updates that share the action's draw all read that of its environment.
        draws = [i] * n if self._share_noise else range(row, row + n)
        numbers = [(draw, t, self.updates + k, self.episodes, start + k) for k, draw in enumerate(draws)]
        noise = jax.tree.map(lambda x: x[:, None], drawn) if self._share_noise else noise
        return noise, bits[row : row + n], np.array(numbers, np.int32)

    def _due_at(self, t: int) -> tuple[bool, bool]:
        """Whether transition ``t`` has a round of learning, and whether it updates the target parameters."""
        if not self._due[0] <= t < self._due[0] + BLOCK:
            schedule, steps = self.agent.learning, np.arange(t, t + BLOCK)
            self._due = (t, schedule.learns_at(steps), schedule.updates_target_at(steps))
        first, learns, updates_target = self._due
        return bool(learns[t - first]), bool(updates_target[t - first])

    def _importance(self, t: int) -> float:
        """The exponent of importance weights; not computed without priorities, because this runs at every step."""
        return self.agent.replay.importance_exponent(t) if self._prioritised else 1.0

    def _act_block(self, n: int) -> tuple[int, Any]:
        """Numbers for the next actions, drawn for many transitions at once, and the first transition of these."""
        length = max(BLOCK, n)
        if not self._act_noise[0] <= self.t <= self._act_noise[0] + length - n:
            noise = draw_acts(self._arrays, np.int32(self.seed), np.int32(self.t), self.actions.n, length)
            self._act_noise = (self.t, noise)
        return self._act_noise

    def _learn_block(self, t: int) -> tuple[int, Any, np.ndarray]:
        """The same for updates: first step, draws of the criterion, and random numbers for sampling."""
        length = max(1, BLOCK // self._rounds)
        if not self._learn_noise[0] <= t < self._learn_noise[0] + length:
            noise = draw_learns(self._arrays, np.int32(self.seed), np.int32(t), length)
            self._learn_noise = (t, noise.criterion, np.asarray(noise.sample))
        return self._learn_noise

    def record(self, final: bool = False) -> dict[str, Any]:
        """As `Loop.record`."""
        batch = None
        if self.replay.ready:
            noise = compiled_calls.draw_diagnosis(np.int32(self.seed), np.int32(self.t), self.agent.learning.batch_size)
            batch, _ = self.replay.sample(np.asarray(noise), self._importance(self.t))
        clock = jax.tree.map(np.int32, self.agent.clock(self.t, self.episodes, self.updates, self.frames_per_step))
        seed = np.int32(self.seed)
        diagnosis = compiled_calls.diagnose_learner(self._arrays, self.learner, seed, self.start_obs, batch, clock)
        diagnosis = jax.device_get(diagnosis)
        row: dict[str, Any] = {"step": self.t}
        row |= {name: float(value) for name, value in diagnosis.numbers.items()}
        row |= self._counter.row(final)
        row["behaviour_changed"] = 1.0 - self.recent_greedy / max(self.recent_steps, 1)
        row["start_value"] = float(diagnosis.atoms.mean(-1).max())
        if not final:
            self.recent_steps = self.recent_greedy = 0
        return row

    def step_log(self) -> dict[str, np.ndarray]:
        """The environment's own log of its steps, if it has one."""
        return {} if self._step_log is None else self._step_log()

    def statistics(self) -> Statistics:
        """As `Loop.statistics`."""
        return self.env.statistics()

    def close(self) -> None:
        """Free what the environments hold."""
        self.env.close()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pytrees and JSON-ready facts from which `load` continues, bit for bit if the environment can be restored."""
        self._priorities.apply(self.replay)
        snapshots = self.env.snapshot()
        trees: dict[str, Any] = {
            "learner": jax.device_get(self.learner),
            "actors": jax.device_get(self.actors),
            "replay": self.replay.state(),
            "pending": self.accumulator.state(),
            "env": {"obs": self.seen.obs, "start": self.start_obs},
        }
        if self.seen.mask is not None:
            trees["env"]["mask"] = self.seen.mask
        if statistics := self.statistics():
            trees["statistics"] = statistics
        if self._async:
            trees["late"] = jax.device_get(self._async.late.tree())
        if waiting := self._priorities.state():
            trees["unranked"] = waiting
        if self._chosen is not None:
            trees["chosen"] = {"actions": self._chosen}
        for i, (_, arrays) in enumerate(snapshots or []):
            trees[f"snapshot-{i}"] = arrays
        facts = GymFacts(
            self.t,
            self.episodes,
            self.updates,
            self.learned,
            self.recent_steps,
            self.recent_greedy,
            self._counter.state(),
            None if snapshots is None else [facts for facts, _ in snapshots],
        )
        return trees, dataclasses.asdict(facts)

    def load(self, contents: Contents) -> bool:
        """Continue from a saved state; false if the environment could not be restored and starts new episodes."""
        facts = contents.record("facts", GymFacts)
        like = {"obs": self.seen.obs, "start": self.start_obs}
        env = contents.tree("env", like if self.seen.mask is None else like | {"mask": self.seen.mask})
        self._learner = Learner.of(jax.tree.map(jnp.asarray, contents.tree("learner", self.learner)))
        if self._async:
            self._async.late = Flat.of(jax.tree.map(jnp.asarray, contents.tree("late", self._async.late.tree())))
        self._priorities.load(contents.group("unranked"), self.capacity)
        self._actors = Flat.of(jax.tree.map(jnp.asarray, contents.tree("actors", self.actors)))
        self.t, self.episodes, self.updates, self.learned = facts.t, facts.episodes, facts.updates, facts.learned
        self.recent_steps, self.recent_greedy = facts.recent_steps, facts.recent_greedy
        self._counter.load(facts.episode_counter)
        self.start_obs = env["start"]
        self.seen = Observation(env["obs"], env.get("mask"))
        self.replay.load(contents.group("replay"), contents.blocks())
        chosen = contents.group("chosen").get("actions")
        n = self.env.n_envs
        self._chosen = None if chosen is None else check_array(chosen, "chosen", np.int32, (2, n), low=0)
        self.accumulator.load(contents.group("pending"), self.replay.stored_as("obs_tm1"))
        statistics = check_statistics(contents.group("statistics"))
        if facts.snapshots is not None:
            if len(facts.snapshots) != self.env.n_envs:
                raise ValueError(f"snapshots of {len(facts.snapshots)} environments, and there are {self.env.n_envs}")
            saved = [(fact, contents.group(f"snapshot-{i}")) for i, fact in enumerate(facts.snapshots)]
            with self._faults():
                there = self.env.rewind(saved)
            if there is not None and np.array_equal(there, self.seen.obs):
                return True
        if statistics:
            self.env.set_statistics(statistics)
        self._restart()
        return False

    def _restart(self) -> None:
        """Start new episodes in all environments and drop the pending steps of the old ones."""
        n = self.env.n_envs
        self.seen, self._chosen = self._start(self.t), None
        self._check(self.seen.obs, "observation at a reset")
        for i in range(n):
            self.accumulator.drop(i)
        self._counter.restart()
        self._start_episodes(np.ones(n, bool))

    def _check(self, numbers: np.ndarray, what: str) -> None:
        if numbers.dtype != np.uint8 and not np.isfinite(numbers).all():
            bad = numbers[~np.isfinite(numbers)].ravel()[0]
            raise EnvironmentFaultError(
                f"{self.env.name} gave {bad} as {what} at step {self.t + 1}. Learning from it would spoil the "
                "parameters, so the run stops here; what came before is saved. Repair the environment and resume."
            )

    def _check_mask(self, seen: Observation) -> None:
        """The mask of an observation to act on."""
        check_masks(seen.mask, self.seen.mask is not None, self.env.name, f"at step {self.t + 1}")

    def _faults(self) -> AbstractContextManager[None]:
        """Report an exception of the environment with its name and the step."""
        return environment_faults(f"{self.env.name} failed at step {self.t + 1}")
