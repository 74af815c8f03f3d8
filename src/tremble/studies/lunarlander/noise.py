"""Sources of the variance of LunarLander's returns under a fixed policy.

The paper names three sources: the random push at the start, the noise of the engines, and the rewards of +-100 at the
end. The first two are separated by repeated flights: from each of several starts (push and ground), many flights that
differ in the engines' noise only. With R_ij the return of repeat j from start i,

    within  = mean_i Var_j R_ij                      the engines
    between = Var_i mean_j R_ij - within / repeats   the start
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

Policy = Callable[[np.ndarray], np.ndarray]
"""Actions ``[n]`` for observations ``[n, ...]``."""
FIRST_START = 2_000_000
"""First seed of the starts; other seeds than those of training and evaluation."""


@dataclass(frozen=True)
class Flights:
    """Flights of one policy, ``[starts, repeats]``."""

    returns: np.ndarray
    ends: np.ndarray
    """Last reward of a terminated flight: -100 for a crash, +100 at rest; 0 if it was truncated."""

    def components(self) -> tuple[float, float]:
        """Variance (between starts, within a start)."""
        repeats = self.returns.shape[1]
        within = float(self.returns.var(1, ddof=1).mean())
        between = float(self.returns.mean(1).var(ddof=1)) - within / repeats
        return max(between, 0.0), within

    @property
    def without_ends(self) -> np.ndarray:
        """Returns without the last rewards."""
        return self.returns - self.ends

    def start_share(self, resamples: int = 2_000) -> tuple[float, float, float]:
        """Share of the variance that the start explains, with a 95 % bootstrap interval over starts."""

        def share(flights: Flights) -> float:
            between, within = flights.components()
            return between / (between + within) if between + within > 0 else 0.0

        rng, n = np.random.default_rng(0), len(self.returns)
        rows = [rng.integers(n, size=n) for _ in range(resamples)]
        low, high = np.quantile([share(Flights(self.returns[r], self.ends[r])) for r in rows], [0.025, 0.975])
        return share(self), float(low), float(high)


def fly(policy: Policy, env_id: str, starts: int = 30, repeats: int = 10) -> Flights:
    """Fly ``repeats`` times from each start, in parallel environments."""
    envs = [gymnasium.make(env_id) for _ in range(repeats)]
    try:
        rows = [_from_one_start(policy, envs, FIRST_START + start) for start in range(starts)]
    finally:
        for env in envs:
            env.close()
    return Flights(np.stack([r for r, _ in rows]), np.stack([e for _, e in rows]))


def _from_one_start(policy: Policy, envs: list[gymnasium.Env[Any, Any]], start: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and ends of one flight in each environment."""
    obs = np.stack([env.reset(seed=start)[0] for env in envs])
    for repeat, env in enumerate(envs):
        env.unwrapped.np_random = np.random.default_rng([start, repeat])
    returns, ends, flying = np.zeros(len(envs)), np.zeros(len(envs)), np.ones(len(envs), bool)
    while flying.any():
        actions = policy(obs)
        for i in np.flatnonzero(flying):
            obs[i], reward, terminated, truncated, _ = envs[i].step(int(actions[i]))
            returns[i] += float(reward)
            ends[i] = float(reward) if terminated else 0.0
            flying[i] = not (terminated or truncated)
    return returns, ends


def random_policy(n_actions: int) -> Policy:
    """Uniformly random actions, as a baseline."""
    rng = np.random.default_rng(0)
    return lambda obs: rng.integers(n_actions, size=len(obs))
