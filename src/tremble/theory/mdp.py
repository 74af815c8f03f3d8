"""Finite Markov decision processes with random rewards, and their exact values."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from tremble.core import Scalar

QValues = Float[Array, "states actions"]
"""A number for every state and action."""


class FiniteMDP(eqx.Module):
    """The joint law of reward and next state, p(r_d, s' | s, a), with rewards from a finite list.

    The return of a terminal state is 0. Rewards may depend on the next state; a leading axis on every array makes many
    MDPs for `jax.vmap`.
    """

    law: Float[Array, "rewards states actions states"]
    """p(r_d, s' | s, a); sums to one over d and s'."""
    rewards: Float[Array, "rewards"]
    """The values r_d."""
    terminal: Bool[Array, "states"]
    gamma: Scalar = 0.9
    start: int | Int[Array, ""] = 0
    """Initial state of episodes, for learning from samples."""

    @property
    def n_states(self) -> int:
        """Number of states."""
        return self.law.shape[-3]

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return self.law.shape[-2]

    def v_max(self) -> Float[Array, ""]:
        """A bound of every return: max |r| / (1 - gamma)."""
        return jnp.abs(self.rewards).max() / (1.0 - self.gamma)

    def expected_reward(self) -> QValues:
        """E[R | s, a]."""
        return jnp.einsum("d,dsat->sa", self.rewards, self.law)

    def continuation(self) -> Float[Array, "states actions states"]:
        """p(s' | s, a) where s' is not terminal, else 0."""
        return self.law.sum(0) * ~self.terminal

    def backup(self, value: Float[Array, "states"]) -> QValues:
        """E[R + gamma V(S') | s, a]."""
        return self.expected_reward() + self.gamma * self.continuation() @ value

    def optimal_q(self, iterations: int = 2000) -> QValues:
        """Q*, by value iteration; the error is at most gamma^iterations V_max."""
        start = jnp.zeros((self.n_states, self.n_actions))
        return jax.lax.fori_loop(0, iterations, lambda _, q: self.backup(q.max(-1)), start)


def random_mdp(
    key: PRNGKeyArray,
    n_states: int = 5,
    n_actions: int = 3,
    n_rewards: int = 3,
    gamma: ArrayLike = 0.9,
    concentration: float = 0.3,
    terminal: int = 0,
) -> FiniteMDP:
    """Dirichlet transitions (smaller ``concentration``: fewer likely outcomes) and rewards uniform in [-1, 1]."""
    law_key, reward_key = jax.random.split(key)
    outcomes = n_rewards * n_states
    law = jax.random.dirichlet(law_key, jnp.full(outcomes, concentration), (n_states, n_actions))
    law = law.reshape(n_states, n_actions, n_rewards, n_states).transpose(2, 0, 1, 3)
    rewards = jax.random.uniform(reward_key, (n_rewards,), minval=-1.0, maxval=1.0)
    return FiniteMDP(law, rewards, jnp.arange(n_states) >= n_states - terminal, jnp.asarray(gamma, jnp.float32))


def from_gymnasium(table: dict[int, dict[int, list[tuple[Any, ...]]]], gamma: float = 0.9, start: int = 0) -> FiniteMDP:
    """The MDP in the table ``P`` of a Gymnasium toy-text environment: ``P[s][a]`` lists (probability, next state,
    reward, done).

    A transition that ends the episode leads to an additional terminal state, the last: in these tables a state may be
    entered with and without ending the episode.
    """
    n_states, n_actions = len(table), len(table[0])
    rewards = sorted({float(outcome[2]) for row in table.values() for outcomes in row.values() for outcome in outcomes})
    law = np.zeros((len(rewards), n_states + 1, n_actions, n_states + 1))
    for s, row in table.items():
        for a, outcomes in row.items():
            for probability, following, reward, done in outcomes:
                law[rewards.index(float(reward)), s, a, n_states if done else following] += probability
    law[0, n_states, :, n_states] = 1.0  # transitions of the terminal state have no effect
    terminal = np.arange(n_states + 1) == n_states
    values = jnp.asarray(rewards, jnp.float32)
    return FiniteMDP(jnp.asarray(law, jnp.float32), values, jnp.asarray(terminal), gamma, start)
