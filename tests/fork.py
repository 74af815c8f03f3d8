"""The problem on which the grid's agents are tried: a step that is only discounted, then a coin or a sure payment.

    s0 --0--> s1 --action 0--> 0 or 2, equally likely        (the two-point probe)
                 --action 1--> 0.7 for sure

What happens at s1 is a question of the distribution there; what s0 is worth says which action the bootstrap selected,
and so whether the criterion was heard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from tremble.core import Clock
from tremble.criteria import Criterion
from tremble.dist import ReturnDist

GAMMA = 0.8
SURE = 0.7
"""What action 1 pays: every criterion of the library is clear about it (`clear_choice` checks)."""
STATES = np.eye(2, dtype=np.float32)
MEAN_TOLERANCE = 0.12
"""Less than the mildest mistakes are worth at s0: the other action selected 0.24, a discount forgotten 0.14 or 0.2."""
COIN_TOLERANCE = 0.3
"""W1 of the coin: one value for both outcomes has 1, atoms spread evenly between them have 1/2; one atom of sixteen on
the wrong side is 1/8."""
SURE_TOLERANCE = 0.15


class Fork(eqx.Module):
    """The problem as an environment written in JAX; its state is whether the first step is done."""

    @property
    def n_actions(self) -> int:
        return 2

    @property
    def observation_table(self) -> None:
        return None

    def reset(self, key: Any) -> jax.Array:
        return jnp.zeros((), jnp.int32)

    def draw(self, key: Any) -> jax.Array:
        return jax.random.bernoulli(key)

    def step(self, state: Any, action: Any, noise: Any) -> Any:
        paid = jnp.where(action == 0, 2.0 * noise, SURE)
        return jnp.ones((), jnp.int32), jnp.where(state == 1, paid, 0.0), state == 1, jnp.asarray(False)

    def observe(self, state: Any) -> jax.Array:
        return jax.nn.one_hot(state, 2)

    def index(self, state: Any) -> jax.Array:
        return state

    def is_optimal(self, state: Any, action: Any) -> jax.Array:
        return (state == 0) | (action == 0)


Law = tuple[np.ndarray, np.ndarray]
"""Outcomes and their probabilities."""
NOTHING: Law = (np.zeros(1), np.ones(1))


@dataclass(frozen=True)
class Memory:
    """What replay holds: all that a learner can know of the world."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray

    def law(self, state: int, action: int, future: Law = NOTHING) -> Law:
        """The law of reward + discount * future over the items of a state and action."""
        here = (self.state == state) & (self.action == action)
        outcomes = (self.reward[here, None] + self.discount[here, None] * future[0]).ravel()
        odds = np.broadcast_to(future[1] / here.sum(), (here.sum(), len(future[1]))).ravel()
        values, which = np.unique(outcomes.round(5), return_inverse=True)
        return values, np.bincount(which, odds)


def clear_choice(criterion: Criterion, distributional: bool, clock: Clock, memory: Memory) -> int:
    """The action at s1 that a criterion selects from the true distributions, whatever it draws.

    A representation without a distribution knows the means only.
    """
    laws = [memory.law(1, action) for action in (0, 1)]
    if not distributional:
        dist = ReturnDist(np.array([[z @ p] for z, p in laws], np.float32))
    else:
        n = max(len(z) for z, _ in laws)
        atoms, weights = (
            np.stack([np.pad(law[k], (0, n - len(law[k])), mode) for law in laws])
            for k, mode in ((0, "edge"), (1, "constant"))
        )
        dist = ReturnDist(atoms.astype(np.float32), weights.astype(np.float32)).sorted()
    first = criterion.draw(jax.random.key(0))
    draws = [first, *(criterion.draw(jax.random.key(k)) for k in range(1, 10))] if jax.tree.leaves(first) else [first]
    scores = np.stack([np.asarray(criterion.score(dist, noise, clock)) for noise in draws])
    gaps = scores[:, 0] - scores[:, 1]
    assert (np.abs(gaps) > 0.08).all() and len(set(np.sign(gaps))) == 1, f"the problem is too close to call: {gaps}"
    return int(gaps[0] < 0)


def w1(dist: ReturnDist, law: Law) -> float:
    """Distance of one predicted distribution from the truth."""
    weights = np.asarray(dist.weights, np.float64)
    return float(scipy.stats.wasserstein_distance(np.asarray(dist.atoms), law[0], weights / weights.sum(), law[1]))


@dataclass(frozen=True)
class Findings:
    """What an agent learned, beside the truth of its memory."""

    mean_error: float
    """Largest error of a mean over states and actions."""
    coin_w1: float
    """W1 of the coin at s1, and where s0 leads to it."""
    sure_w1: float
    """W1 of the sure payment at s1."""
    loss_before: float
    """Loss of the untrained parameters on the last targets."""
    loss_after: float
    updates: int

    def faults(self, distributional: bool) -> list[str]:
        """What is wrong, in words; nothing is good."""
        checks = {
            f"a mean is off by {self.mean_error:.3f}": self.mean_error > MEAN_TOLERANCE,
            f"the coin is off by {self.coin_w1:.3f}": distributional and self.coin_w1 > COIN_TOLERANCE,
            f"the sure payment is off by {self.sure_w1:.3f}": self.sure_w1 > SURE_TOLERANCE,
            f"the loss went from {self.loss_before:.4f} to {self.loss_after:.4f}": not (
                np.isfinite(self.loss_after) and self.loss_after < self.loss_before
            ),
            f"only {self.updates} updates": self.updates < 200,
        }
        return [words for words, wrong in checks.items() if wrong]


def findings(
    dist: ReturnDist, memory: Memory, choice: int, loss_before: float, loss_after: float, updates: int
) -> Findings:
    """Compare ``dist.atoms[states, actions, atoms]`` with what the memory says under the bootstrap's ``choice``."""
    at_fork = [memory.law(1, action) for action in (0, 1)]
    at_start = [memory.law(0, action, at_fork[choice]) for action in (0, 1)]
    means = np.asarray(dist.mean())
    errors = [abs(means[s, a] - z @ p) for s, laws in ((0, at_start), (1, at_fork)) for a, (z, p) in enumerate(laws)]
    coins = [w1(dist[1][0], at_fork[0]), *(w1(dist[0][a], at_start[a]) for a in (0, 1))]
    return Findings(float(max(errors)), max(coins), w1(dist[1][1], at_fork[1]), loss_before, loss_after, updates)
