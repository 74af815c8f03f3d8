"""Bringing a Gymnasium environment back to where it was, without pickling it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np


@runtime_checkable
class Savable(Protocol):
    """An environment that can say what state it is in: the best case, and used where offered."""

    def save_state(self) -> dict[str, np.ndarray]:
        """Everything that determines what follows."""
        ...

    def load_state(self, state: dict[str, np.ndarray]) -> Any:
        """Be in that state again; returns the observation there."""
        ...


class Rewindable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers how the present state came about: the generator when the episode began, and the actions since.

    Most environments are a deterministic function of their Gymnasium generator (`np_random`) and the actions, so
    resetting with that generator and repeating the actions leads to the same state. Whoever rewinds compares the
    observation, because an environment may hide other randomness.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], index: int = 0):
        """``index`` is the environment's number among several."""
        super().__init__(env)
        self._index = index
        self._seed: int | None = None
        self._generator: dict[str, Any] | None = None
        self._actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, and remember from what."""
        self._seed = None if seed is None else int(seed)
        # Reading `np_random` of an environment that was never seeded would seed it; then there is nothing to remember.
        ready = seed is None and getattr(self.unwrapped, "_np_random", None) is not None
        self._generator = dict(self.unwrapped.np_random.bit_generator.state) if ready else None
        self._actions = []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step, remembered."""
        outcome = self.env.step(action)
        self._actions.append(int(action))  # only now: a step that failed is not part of the way back
        return outcome

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON-ready facts and arrays from which `rewind` gets back here."""
        if isinstance(self.unwrapped, Savable):
            return {"how": "state"}, self.unwrapped.save_state()
        facts = {"how": "replay", "seed": self._seed, "generator": self._generator}
        return facts, {"actions": np.asarray(self._actions, np.int32)}

    def rewind(self, snapshots: list[tuple[dict[str, Any], dict[str, np.ndarray]]]) -> Any:
        """Be where the snapshot of this environment's number was; returns the observation there, None if it cannot.

        It takes the snapshots of all environments, because a vector environment passes every one the same arguments.
        """
        facts, arrays = snapshots[self._index]
        if facts["how"] == "state" and isinstance(self.unwrapped, Savable):
            self.env.reset(seed=0)  # wrappers start an episode
            return self.unwrapped.load_state(arrays)
        if facts["seed"] is None:
            generator = facts["generator"]
            if generator is None or generator.get("bit_generator") != "PCG64":
                return None
            self.env.reset(seed=0)
            bits = np.random.PCG64()
            bits.state = generator
            self.unwrapped.np_random = np.random.Generator(bits)
        obs, _ = self.reset(seed=facts["seed"])
        for action in arrays["actions"]:
            obs, _, terminated, truncated, _ = self.step(int(action))
            if terminated or truncated:
                return None
        return obs
