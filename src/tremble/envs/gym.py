"""Transitions from any Gymnasium environment: one or several, in this process or others, in every autoreset mode.

The three modes of Gymnasium's vector environments differ in the transition that ends an episode:

    disabled    `step` returns the final observation; we reset. This is what vectors made here use.
    same step   `step` returns the next episode's first observation; the final one is in ``info["final_obs"]``.
    next step   `step` returns the final observation; the *next* `step` ignores its action and resets: no transition.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from tremble.envs.encoding import Actions, Encoder, UnsupportedSpaceError
from tremble.envs.faults import EnvironmentFaultError
from tremble.envs.masks import INFO_ACTION_MASK, stack_masks
from tremble.envs.registry import benchmark_of
from tremble.envs.rewind import Rewindable
from tremble.envs.running_statistics import Statistics, normalisers, set_statistics, statistics_of
from tremble.envs.unknown import refuse_unknown
from tremble.settings import SettingsError

INFO_NO_BOOTSTRAP = "no_bootstrap"
"""In ``info``: the return ends with this step, although the episode continues (a life was lost)."""
INFO_RAW_REWARD = "raw_reward"
"""In ``info``: the reward in points of the game, if the agent's is clipped."""
INFO_TRAINING_REWARD = "training_reward"
"""In ``info``: the reward that agents are trained on, if an environment for evaluation returns another."""
INFO_GAME_OVER = "game_over"
"""In ``info``: whether a whole game has ended, if the agent's episodes are shorter (lives)."""
Snapshots = list[tuple[dict[str, Any], dict[str, np.ndarray]]]


@dataclass(frozen=True)
class Observation:
    """Encoded observations ``obs[n, *obs]``; permitted actions ``mask[n, actions]`` if the environment gives them."""

    obs: np.ndarray
    mask: np.ndarray | None


@dataclass(frozen=True)
class Outcome:
    """The result of one step of n environments."""

    happened: np.ndarray
    """bool[n]: false where the call only reset, so there is no transition."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final: Observation
    """The observation after each transition: the final one where an episode ended."""
    next: Observation
    """The observation to act on next: the next episode's first one where an episode ended."""
    no_bootstrap: np.ndarray
    """bool[n]: where the return ends although the episode continues."""
    score: np.ndarray
    """Rewards in points of the game."""
    over: np.ndarray
    """bool[n]: where a whole game ended; returns in the logs are those of games."""


@runtime_checkable
class Environment(Protocol):
    """n environments, as a training loop uses them."""

    name: str
    n_envs: int
    actions: Actions
    """What the numbers that are sent stand for."""
    encoder: Encoder
    stacked: bool
    """Whether observations are the newest pictures ``[height, width, n]``, so that replay can store each once."""
    frames_per_step: int
    """Frames of the environment that a step spans (``metadata["frames_per_step"]``, 1 by default)."""
    not_restorable: str
    """Why `rewind` never leads back; empty if it may."""

    @property
    def resetting(self) -> np.ndarray:
        """bool[n]: where the next step only resets and ignores the action."""
        ...

    def start(self, seeds: Sequence[int]) -> Observation:
        """Start an episode in each environment from its seed."""
        ...

    def send(self, actions: np.ndarray) -> None:
        """Send the actions; environments in other processes start stepping."""
        ...

    def receive(self) -> Outcome:
        """Wait for the outcome of the actions sent."""
        ...

    def undo(self) -> bool:
        """Forget a step that failed, so that `snapshot` is of the state before it; false if that is impossible."""
        ...

    def snapshot(self) -> Snapshots | None:
        """JSON-ready facts and arrays per environment from which `rewind` restores it; None if it cannot."""
        ...

    def rewind(self, snapshots: Snapshots) -> np.ndarray | None:
        """Restore a `snapshot`; the encoded observations ``[n, *obs]``, or None if it failed."""
        ...

    def statistics(self) -> Statistics:
        """Running statistics of the normalising wrappers around the first environment; empty if there are none."""
        ...

    def set_statistics(self, arrays: Statistics) -> None:
        """Let all environments normalise by these from now on; they go on updating them."""
        ...

    def close(self) -> None:
        """Free what the environments hold."""
        ...


class Serial:
    """Environments stepped one after the other in this process: the fastest for cheap ones."""

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]], name: str):
        """Wrap environments with equal spaces."""
        self.name, self.n_envs = name, len(envs)
        self.envs = [Rewindable(env, i) for i, env in enumerate(envs)]
        self.encoder = Encoder.of(self.envs[0].observation_space)
        self.actions = Actions.of(self.envs[0].action_space, name)
        self.not_restorable = ""
        metadata = self.envs[0].unwrapped.metadata
        self.stacked = bool(metadata.get("stacked_pictures"))
        self.frames_per_step = int(metadata.get("frames_per_step", 1))
        self._masks: list[Any] = [None] * self.n_envs
        self._obs = np.zeros((self.n_envs, *self.encoder.shape), self.encoder.dtype)
        self._sent = np.zeros(self.n_envs, np.int64)
        self.resetting = np.zeros(self.n_envs, bool)
        self._before: list[tuple[int, int]] = []
        """Per environment: resets and steps before the step under way."""

    def start(self, seeds: Sequence[int]) -> Observation:
        """Start an episode in each environment from its seed."""
        for i, seed in enumerate(seeds):
            self._reset(i, seed)
        return self._seen()

    def send(self, actions: np.ndarray) -> None:
        """Keep the actions for `receive`."""
        self._sent, self._before = actions, [(env.resets, env.steps) for env in self.envs]

    def undo(self) -> bool:
        """As `Environment.undo`."""
        return all([env.undo(*before) for env, before in zip(self.envs, self._before, strict=True)])

    def receive(self) -> Outcome:
        """Step each environment, and reset it if its episode ended."""
        n = self.n_envs
        reward, terminated, truncated = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
        no_bootstrap, score, over = np.zeros(n, bool), np.zeros(n), np.zeros(n, bool)
        after_obs, after_masks = np.empty_like(self._obs), list(self._masks)
        for i, env in enumerate(self.envs):
            obs, reward[i], terminated[i], truncated[i], info = env.step(self.actions.own(self._sent[i]))
            after_obs[i] = self._obs[i] = self.encoder(obs)
            after_masks[i] = self._masks[i] = info.get(INFO_ACTION_MASK)
            no_bootstrap[i], score[i] = info.get(INFO_NO_BOOTSTRAP, False), info.get(INFO_RAW_REWARD, reward[i])
            over[i] = info.get(INFO_GAME_OVER, terminated[i] or truncated[i])
            if terminated[i] or truncated[i]:
                self._reset(i, None)
        after = Observation(after_obs, stack_masks(after_masks, self.actions))
        happened = np.ones(n, bool)
        return Outcome(happened, reward, terminated, truncated, after, self._seen(), no_bootstrap, score, over)

    def snapshot(self) -> Snapshots | None:
        """As `Environment.snapshot`."""
        return [env.snapshot() for env in self.envs]

    def rewind(self, snapshots: Snapshots) -> np.ndarray | None:
        """As `Environment.rewind`."""
        there = [env.rewind(snapshots) for env in self.envs]
        if any(obs is None for obs in there):
            return None
        self._obs = np.stack([self.encoder(obs) for obs in there])
        return self._obs.copy()

    def statistics(self) -> Statistics:
        """As `Environment.statistics`."""
        return self.envs[0].statistics()

    def set_statistics(self, arrays: Statistics) -> None:
        """As `Environment.set_statistics`."""
        for env in self.envs:
            env.set_statistics(arrays)

    def close(self) -> None:
        """Free what the environments hold."""
        for env in self.envs:
            env.close()

    def _reset(self, i: int, seed: int | None) -> None:
        obs, info = self.envs[i].reset(seed=seed)
        self._obs[i], self._masks[i] = self.encoder(obs), info.get(INFO_ACTION_MASK)

    def _seen(self) -> Observation:
        return Observation(self._obs.copy(), stack_masks(self._masks, self.actions))


class Vector:
    """A Gymnasium vector environment in any autoreset mode."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], name: str, rewindable: bool = False):
        """``rewindable``: whether every environment in the vector is a `Rewindable`."""
        self.name, self.envs = name, envs
        try:
            self.n_envs, seen, taken = envs.num_envs, envs.single_observation_space, envs.single_action_space
        except AttributeError as error:
            raise UnsupportedSpaceError(
                f"{name} is a vector environment without num_envs, single_observation_space or single_action_space: "
                f"set them in its __init__ ({error})"
            ) from error
        self.encoder, self.actions = Encoder.of(seen), Actions.of(taken, name)
        self.mode = autoreset_mode(envs, name)
        self.stacked = bool(envs.metadata.get("stacked_pictures"))
        self.frames_per_step = int(envs.metadata.get("frames_per_step", 1))
        self.not_restorable = (
            ""
            if rewindable
            else "a vector environment that tremble did not make, which cannot be brought back to a state"
        )
        self._takes_seeds = isinstance(envs.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        """Whether every environment gets a seed of its own; vectors written as such take one for all."""
        self.resetting = np.zeros(self.n_envs, bool)
        self._sent: np.ndarray | None = None

    def start(self, seeds: Sequence[int]) -> Observation:
        """Start an episode in each environment from its seed."""
        seed: Any = [int(seed) for seed in seeds] if self._takes_seeds else int(seeds[0]) % 2**31
        obs, info = self.envs.reset(seed=seed)
        self.resetting[:] = False
        return self._seen(obs, info)

    def send(self, actions: np.ndarray) -> None:
        """Send the actions; environments in other processes start stepping."""
        own = self.actions.decode(actions)
        if isinstance(self.envs, AsyncVectorEnv):
            self.envs.step_async(own)
        else:
            self._sent = own

    def receive(self) -> Outcome:
        """Step, and convert the result from the autoreset mode."""
        if isinstance(self.envs, AsyncVectorEnv):
            obs, reward, terminated, truncated, info = self.envs.step_wait()
        else:
            obs, reward, terminated, truncated, info = self.envs.step(self._sent)
        seen = self._seen(obs, info)
        reward, terminated, truncated = np.asarray(reward), np.asarray(terminated), np.asarray(truncated)
        no_bootstrap = _from_info(info, INFO_NO_BOOTSTRAP, np.zeros(self.n_envs, bool))
        score = _from_info(info, INFO_RAW_REWARD, reward.astype(np.float64))
        over = _from_info(info, INFO_GAME_OVER, terminated | truncated)
        after, happened = seen, ~self.resetting
        ended = (terminated | truncated) & happened
        if self.mode is AutoresetMode.NEXT_STEP:
            self.resetting = ended
        elif ended.any() and self.mode is AutoresetMode.SAME_STEP:
            after = self._final(seen, info, ended)
        elif ended.any():
            obs, info = self.envs.reset(options={"reset_mask": ended.copy()})
            started = self._seen(obs, info)
            mask = None
            if started.mask is not None and seen.mask is not None:
                mask = np.where(ended[:, None], started.mask, seen.mask)
            seen = Observation(started.obs, mask)
        return Outcome(happened, reward, terminated, truncated, after, seen, no_bootstrap, score, over)

    def undo(self) -> bool:
        """As `Environment.undo`: not possible."""
        return False

    def snapshot(self) -> Snapshots | None:
        """As `Environment.snapshot`; None for vectors that `open_environment` did not make."""
        return None if self.not_restorable else list(self.envs.call("snapshot"))  # type: ignore[attr-defined]

    def rewind(self, snapshots: Snapshots) -> np.ndarray | None:
        """As `Environment.rewind`."""
        if self.not_restorable:
            return None
        there = self.envs.call("rewind", snapshots)  # type: ignore[attr-defined]
        if any(obs is None for obs in there):
            return None
        return np.stack([self.encoder(obs) for obs in there])

    def statistics(self) -> Statistics:
        """As `Environment.statistics`; those of environments in processes that tremble did not start stay there."""
        if not self.not_restorable:
            first: Statistics = self.envs.call("statistics")[0]  # type: ignore[attr-defined]
            return first
        return statistics_of(normalisers(self.envs))

    def set_statistics(self, arrays: Statistics) -> None:
        """As `Environment.set_statistics`."""
        if not self.not_restorable:
            self.envs.call("set_statistics", arrays)  # type: ignore[attr-defined]
        else:
            for i in range(self.n_envs):
                set_statistics(normalisers(self.envs, i), arrays)

    def close(self) -> None:
        """Free what the environments hold."""
        self.envs.close()

    def _seen(self, obs: Any, info: dict[str, Any]) -> Observation:
        return Observation(np.array(self.encoder(obs, (self.n_envs,))), self._masks(info))

    def _masks(self, info: dict[str, Any]) -> np.ndarray | None:
        """Permitted actions ``[n, actions]``: an array, or a tuple of arrays ``[n, values]``, one for each choice."""
        masks = info.get(INFO_ACTION_MASK)
        if masks is None:
            return None
        given = np.broadcast_to(info.get(f"_{INFO_ACTION_MASK}", True), self.n_envs)
        rows = list(zip(*masks, strict=True)) if isinstance(masks, tuple) else list(masks)
        if len(rows) != self.n_envs:
            raise EnvironmentFaultError(
                f"info[{INFO_ACTION_MASK!r}] must have a row for each of {self.n_envs} environments, got {len(rows)}"
            )
        # A reset of some environments, and final masks, say nothing about the others.
        unknown = np.ones(self.actions.n, bool)
        return stack_masks([row if there else unknown for row, there in zip(rows, given, strict=True)], self.actions)

    def _final(self, seen: Observation, info: dict[str, Any], ended: np.ndarray) -> Observation:
        """The final observations in the same-step mode."""
        if "final_obs" not in info:
            raise EnvironmentFaultError(
                f"{self.name} ended an episode without info['final_obs']: in the autoreset mode 'same step' it must "
                "hold the true final observation"
            )
        final, masks = info["final_obs"], self._masks(info.get("final_info", {}))
        batch = None if isinstance(final, np.ndarray) and final.dtype == object else self.encoder(final, (self.n_envs,))
        obs, mask = seen.obs.copy(), None if seen.mask is None else seen.mask.copy()
        for i in np.flatnonzero(ended):
            obs[i] = self.encoder(final[i]) if batch is None else batch[i]
            if mask is not None:
                mask[i] = True if masks is None else masks[i]
        return Observation(obs, mask)


def autoreset_mode(envs: VectorEnv[Any, Any, Any], name: str) -> AutoresetMode:
    """What a vector environment does at the end of an episode; an error if it does not say so."""
    mode = envs.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        said = "does not say" if mode is None else f"says by {mode!r}, which is no autoreset mode,"
        raise UnsupportedSpaceError(
            f"{name} {said} in metadata['autoreset_mode'] what it does at the end of an episode. Set it in the class: "
            "metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.NEXT_STEP}, or SAME_STEP or DISABLED"
        ) from error


def open_environment(
    env: Any, n_envs: int = 1, parallel: bool = False, options: dict[str, Any] | None = None
) -> Environment:
    """An `Environment` from a Gymnasium id, ``module:Class``, a function that makes one, or a ready-made object.

    ``parallel`` runs each environment in its own process, which is faster if a step takes milliseconds.
    """
    name = name_of(env)
    if isinstance(env, VectorEnv | gymnasium.Env):
        if n_envs > 1 or parallel or options:
            raise UnsupportedSpaceError(
                f"{name} is ready-made, so it cannot have options, be parallel or have another number of environments "
                "(n_envs): give its id or a function for that"
            )
        return Vector(env, name) if isinstance(env, VectorEnv) else Serial([env], name)
    benchmark = benchmark_of(env) if isinstance(env, str) else None
    vector = benchmark.open_vector(env, n_envs, options or {}) if benchmark is not None else None
    if vector is not None:
        return vector
    make = partial(make_single, env, options or {})
    if not parallel:
        envs = [make() for _ in range(n_envs)]
        if len({id(env.unwrapped) for env in envs}) < n_envs:
            raise UnsupportedSpaceError(f"{name} returned the same environment again: it must make a new one each time")
        return Serial(envs, name)
    make().close()  # in this process first, so that an error is reported once
    functions = [partial(_make_numbered, make, i, os.getpid()) for i in range(n_envs)]
    # Not by forking this process: JAX has threads, and a fork would copy their locks.
    start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    processes = AsyncVectorEnv(functions, context=start, autoreset_mode=AutoresetMode.DISABLED)
    return Vector(processes, name, rewindable=True)


def make_single(env: Any, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """One environment from a Gymnasium id, ``module:Class`` or a function; errors name the environment and a fix."""
    if isinstance(env, str):
        refuse_unknown(env)
    try:
        if not isinstance(env, str):
            return _single(env(**options), env)
        module, colon, attribute = env.partition(":")
        if colon and attribute.isidentifier():
            return _single(getattr(importlib.import_module(module), attribute)(**options), env)
        return gymnasium.make(env, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        extra = "".join(
            f". For tremble: pip install 'tremble[{name}]'" for name in ("box2d", "atari") if name in str(error).lower()
        )
        raise UnsupportedSpaceError(f"cannot make {name_of(env)}: {error}{extra}") from error
    except (ImportError, AttributeError, TypeError, SettingsError, gymnasium.error.Error) as error:
        raise UnsupportedSpaceError(f"cannot make {name_of(env)}: {error}") from error


def _single(made: Any, source: Any) -> gymnasium.Env[Any, Any]:
    if isinstance(made, VectorEnv):
        raise UnsupportedSpaceError(
            f"{name_of(source)} makes a vector environment: call it yourself and give what it returns, or let it make "
            "a single one, and set n_envs"
        )
    if not isinstance(made, gymnasium.Env):
        raise UnsupportedSpaceError(f"{name_of(source)} makes a {type(made).__name__}, which is no gymnasium.Env")
    return made


def _make_numbered(make: Callable[[], gymnasium.Env[Any, Any]], index: int, trainer: int) -> gymnasium.Env[Any, Any]:
    """An environment in a process of its own. A Ctrl-C in the terminal reaches it too, but training decides.

    Gymnasium also calls this once in the process of training, number ``trainer``, to see the spaces.
    """
    if os.getpid() != trainer:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Rewindable(make(), index)


def name_of(env: Any) -> str:
    """The name of an environment in messages and files."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    return spec.id if isinstance(spec, EnvSpec) else getattr(env, "__name__", type(env).__name__)


def _from_info(info: dict[str, Any], key: str, default: np.ndarray) -> np.ndarray:
    """An entry of a vector's ``info`` where environments have it, else the default.

    In the same-step mode, the entries of an episode's last step are in ``final_info``.
    """
    values = default
    for source in (info, info.get("final_info", {})):
        if key in source:
            values = np.where(source.get(f"_{key}", True), source[key], values)
    return values
