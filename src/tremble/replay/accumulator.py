"""From single steps to n-step items."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from tremble.core import Transition
from tremble.records import check_array


class Accumulator:
    """Windows of up to ``n_step`` steps, for each of ``n_envs`` environments on its own.

    The item that starts at step t with m rewards in its window, m = min(n_step, steps left in the episode), has

        reward_t = sum_{k<m} gamma^k r_{t+k},    discount_t = gamma^m, or 0 if the window ends in a terminal state,

    so an episode gives as many items as it has steps, and no window reaches into the next one. A truncated episode
    (time limit) bootstraps from its true last observation.
    """

    def __init__(self, n_step: int, gamma: float, n_envs: int) -> None:
        """No step is pending."""
        if n_step < 1:
            raise ValueError(f"n_step must be at least 1, got {n_step}")
        if n_envs < 1:
            raise ValueError(f"n_envs must be at least 1, got {n_envs}")
        self.n_step, self.n_envs = n_step, n_envs
        self._powers = [float(gamma) ** k for k in range(n_step + 1)]
        # Per environment the steps that wait for further rewards, oldest first; what follows them is not set yet.
        self._pending: list[deque[Transition]] = [deque() for _ in range(n_envs)]

    def add(
        self,
        env: int,
        obs: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_obs: Any,
        next_mask: Any = None,
        extra: Any = None,
    ) -> list[Transition]:
        """Take one step of one environment and return the items it completes, oldest first (NumPy fields).

        ``next_obs`` is the observation after the step, also where the episode ends; ``next_mask`` its allowed actions.
        ``extra`` is the step's `Transition.extra`; an item has that of its first step.
        """
        pending = self._pending[env]
        # Copies, because environments may write the next observation into the same array.
        kept = None if extra is None else np.array(extra)
        pending.append(_step(np.array(obs), np.asarray(action, np.int32), float(reward), kept))
        after = np.array(next_obs)
        mask = None if next_mask is None else np.array(next_mask, bool)
        if terminated or truncated:
            items = [self._item(env, start, bool(terminated), after, mask) for start in range(len(pending))]
            pending.clear()
        elif len(pending) == self.n_step:
            items = [self._item(env, 0, False, after, mask)]
            pending.popleft()
        else:
            items = []
        return items

    def _item(self, env: int, start: int, terminated: bool, after: np.ndarray, mask: np.ndarray | None) -> Transition:
        """The window from pending step ``start`` to the newest."""
        steps = list(self._pending[env])[start:]
        # Summed in float64: in float32 the error would grow with the window.
        total = sum(power * step.reward_t for power, step in zip(self._powers, steps, strict=False))
        discount = 0.0 if terminated else self._powers[len(steps)]
        return steps[0]._replace(
            reward_t=np.asarray(total, np.float32),
            discount_t=np.asarray(discount, np.float32),
            obs_t=after,
            mask_t=mask,
        )

    def drop(self, env: int) -> None:
        """Drop the pending steps of one environment, because its episode could not be restored."""
        self._pending[env].clear()

    def state(self) -> dict[str, np.ndarray]:
        """The p pending steps, by environment: ``obs[p, ...]``, ``action[p]``, ``reward[p]``, ``extra[p, ...]`` if any.

        ``pending[n_envs]`` is the number of steps of each environment.
        """
        steps = [step for pending in self._pending for step in pending]
        state = {
            "pending": np.array([len(pending) for pending in self._pending], np.int64),
            "obs": np.stack([step.obs_tm1 for step in steps]) if steps else np.zeros((0,), np.float32),
            "action": np.array([step.action_tm1 for step in steps], np.int32),
            "reward": np.array([step.reward_t for step in steps], np.float64),
        }
        if steps and steps[0].extra is not None:
            state["extra"] = np.stack([step.extra for step in steps])
        return state

    def load(self, state: dict[str, np.ndarray], obs: np.dtype[Any]) -> None:
        """Continue from a `state`; ``obs`` is the type of an observation, with its shape."""
        lengths = state["pending"].tolist()
        if len(lengths) != self.n_envs or max(lengths) >= self.n_step or min(lengths) < 0:
            raise ValueError(
                f"pending steps {lengths} do not fit {self.n_envs} environments with at most {self.n_step - 1} each: "
                "they were saved under another n_step or number of environments"
            )
        n = sum(lengths)
        if n:
            check_array(state["obs"], "pending obs", obs.base, (n, *obs.shape))
        check_array(state["action"], "pending action", np.int32, (n,), low=0)
        check_array(state["reward"], "pending reward", np.float64, (n,))
        extras = state.get("extra", [None] * n)
        steps = [
            _step(np.array(obs), np.asarray(action), reward, None if extra is None else np.array(extra))
            for obs, action, reward, extra in zip(
                state["obs"], state["action"], state["reward"].tolist(), extras, strict=True
            )
        ]
        ends = np.cumsum(lengths).tolist()
        self._pending = [deque(steps[end - length : end]) for length, end in zip(lengths, ends, strict=True)]


def _step(obs: np.ndarray, action: np.ndarray, reward: float, extra: np.ndarray | None) -> Transition:
    """A step whose reward is that of the step alone, and whose discount and next observation are not known yet."""
    return Transition(obs, action, reward, None, None, extra=extra)
