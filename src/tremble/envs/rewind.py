"""Restoring the state of a Gymnasium environment without pickling it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from tremble.envs.running_statistics import Statistics, layers, normalisers, set_statistics, statistics_of

WITHOUT_STATE = (PassiveEnvChecker, OrderEnforcing)
"""Wrappers around which the environment's own state is all there is, once an episode has begun."""


@runtime_checkable
class Savable(Protocol):
    """An environment that can save and load its state."""

    def save_state(self) -> dict[str, np.ndarray]:
        """Everything that later steps depend on, except Gymnasium's generator (`np_random`), which is saved with it."""
        ...

    def load_state(self, state: dict[str, np.ndarray]) -> Any:
        """Restore a `save_state`; returns the observation."""
        ...


def restored_generator(state: Any) -> np.random.Generator:
    """The generator whose ``bit_generator.state`` this was."""
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)


class Rewindable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records the episode's RNG state and actions; `rewind` restores the RNG, resets and repeats the actions.

    That leads to the same state if the environment is a deterministic function of its Gymnasium generator (`np_random`)
    and the actions; running statistics of normalising wrappers are set to those at the start of the episode before.
    The caller of `rewind` compares observations, because an environment may have other randomness.
    An environment that is `Savable`, without wrappers that have a state of their own, is saved and loaded instead,
    with its Gymnasium generator.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], index: int = 0):
        """``index``: position of the environment among several."""
        super().__init__(env)
        self._index = index
        *around, inner = layers(env)
        plain = all(isinstance(wrapper, WITHOUT_STATE) for wrapper in around)
        self._savable = inner if isinstance(inner, Savable) and plain else None
        self._normalisers = normalisers(env)
        self._seed: int | None = None
        self._generator: dict[str, Any] | None = None
        self._actions: list[np.ndarray] = []
        self._begun_with: Statistics = {}
        """Running statistics at the start of the episode."""
        self._tried: tuple[int, Statistics] = (-1, {})
        """Number of the newest step in the episode, whether or not it succeeded, and the statistics before it."""
        self.resets = 0
        """Episodes begun."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode and record its RNG state."""
        self._seed = None if seed is None else int(seed)
        self._generator = self._generator_now() if seed is None else None
        self._begun_with = statistics_of(self._normalisers, carried=True)
        self._actions, self._tried = [], (-1, {})
        self.resets += 1
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and record the action."""
        if self._normalisers:
            self._tried = (self.steps, statistics_of(self._normalisers, carried=True))
        outcome = self.env.step(action)
        self._actions.append(np.array(action))  # after the step: one that raised is not repeated
        return outcome

    def undo(self, resets: int, steps: int) -> bool:
        """Forget what came after so many resets and steps of the episode; whether `snapshot` is then of that state."""
        if self._savable is not None or self.resets != resets:
            return False
        if self._tried[0] == steps:
            set_statistics(self._normalisers, self._tried[1])
        del self._actions[steps:]
        return True

    @property
    def steps(self) -> int:
        """Steps of this episode."""
        return len(self._actions)

    def statistics(self) -> Statistics:
        """Running statistics of the normalising wrappers."""
        return statistics_of(self._normalisers)

    def set_statistics(self, arrays: Statistics) -> None:
        """Normalise by these from now on, and update them."""
        set_statistics(self._normalisers, arrays)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON-ready facts and arrays from which `rewind` restores this state."""
        if self._savable is not None:
            return {"how": "state", "generator": self._generator_now()}, self._savable.save_state()
        facts = {"how": "replay", "seed": self._seed, "generator": self._generator}
        shape, dtype = self.action_space.shape, self.action_space.dtype
        actions = np.reshape(np.array(self._actions, dtype), (-1, *(shape or ())))
        return facts, {"actions": actions} | self._begun_with

    def _generator_now(self) -> dict[str, Any] | None:
        """The state of Gymnasium's generator; None if there is none yet, or one that cannot be restored."""
        # Reading `np_random` of an environment that was never seeded would seed it.
        if getattr(self.unwrapped, "_np_random", None) is None:
            return None
        state = dict(self.unwrapped.np_random.bit_generator.state)
        return state if state.get("bit_generator") == "PCG64" else None

    def rewind(self, snapshots: list[tuple[dict[str, Any], dict[str, np.ndarray]]]) -> Any:
        """Restore the snapshot at this environment's index; returns the observation, None if it failed.

        Takes the snapshots of all environments, because vector environments pass the same arguments to each.
        """
        try:
            return self._rewound(*snapshots[self._index])
        except Exception:  # an environment with other randomness may refuse an action that was permitted before
            return None

    def _rewound(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        if facts["how"] == "state" and self._savable is not None:
            self.env.reset(seed=0)  # wrappers start an episode
            obs = self._savable.load_state(arrays)
            if (generator := facts["generator"]) is not None:
                self.unwrapped.np_random = restored_generator(generator)
            return obs
        if facts["how"] != "replay":
            return None
        if facts["seed"] is None:
            generator = facts["generator"]
            if generator is None:
                return None
            self.env.reset(seed=0)
            self.unwrapped.np_random = restored_generator(generator)
        set_statistics(self._normalisers, arrays)
        obs, _ = self.reset(seed=facts["seed"])
        for action in arrays["actions"]:
            obs, _, terminated, truncated, _ = self.step(action if action.ndim else int(action))
            if terminated or truncated:
                return None
        return obs
