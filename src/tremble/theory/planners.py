"""Exploration baselines that plan with an empirical model: RLSVI and UCB."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.choosers import draw_choice, greedy
from tremble.core import Clock, Scalar
from tremble.theory.episodes import Episode, Index
from tremble.theory.mdp import QValues


class Counts(eqx.Module):
    """Beliefs: an empirical model."""

    visits: QValues
    moves: Float[Array, "states actions states"]
    """Counts of transitions; steps that ended the episode are in ``visits`` only."""
    rewards: QValues
    """Their sums."""


class Planner(eqx.Module):
    """Value iteration on the empirical model, perturbed once per episode; acts greedily.

        Q(s, a) = min(bound, r_hat + w(s, a) + gamma sum_s' p_hat V(s')),     with n = visits + 1,

    ``rlsvi``: w ~ N(0, scale^2 / n), randomised value functions (Osband et al., arXiv:1402.0635): a posterior sample of
    a Gaussian model, kept for the episode and used in planning. ``ucb``: w = scale sqrt(log t / n), optimism about
    epistemic uncertainty, in contrast to DLTV's about the variance of the return; UCBVI's form (arXiv:1703.05449), not
    its constants.
    """

    kind: Literal["rlsvi", "ucb"] = eqx.field(static=True, default="rlsvi")
    scale: Scalar = 1.0
    """In units of reward."""
    bound: Scalar = jnp.inf
    """Upper bound of values."""
    gamma: Scalar = 0.99
    sweeps: int = eqx.field(static=True, default=20)
    """Iterations of value iteration; the length of an episode is enough."""

    def init(self, n_states: int, n_actions: int, key: PRNGKeyArray) -> Counts:
        """Zero counts."""
        pairs = jnp.zeros((n_states, n_actions))
        return Counts(pairs, jnp.zeros((n_states, n_actions, n_states)), pairs)

    def begin(self, belief: Counts, key: PRNGKeyArray, clock: Clock) -> QValues:
        """Q of the perturbed model."""
        n = belief.visits + 1.0
        if self.kind == "rlsvi":
            disturbance = self.scale * jax.random.normal(key, n.shape) / jnp.sqrt(n)
        else:
            disturbance = self.scale * jnp.sqrt(jnp.log(1.0 + clock.time("transitions")) / n)
        reward = belief.rewards / n + disturbance
        onward = self.gamma * belief.moves / n[..., None]

        def sweep(_: Any, q: Array) -> Array:
            return jnp.minimum(reward + onward @ q.max(-1), self.bound)

        return jax.lax.fori_loop(0, self.sweeps, sweep, jnp.zeros_like(n))

    def act(self, belief: Counts, plan: QValues, state: Index, key: PRNGKeyArray, clock: Clock) -> Index:
        """Greedy, ties at random."""
        return greedy(plan[state], None, draw_choice(key, plan.shape[-1]))

    def learn(self, belief: Counts, episode: Episode, key: PRNGKeyArray, clock: Clock) -> Counts:
        """Update the counts."""
        at, alive = (episode.state, episode.action), episode.alive.astype(float)
        onward = alive * (episode.discount > 0)
        return Counts(
            belief.visits.at[at].add(alive),
            belief.moves.at[(*at, episode.following)].add(onward),
            belief.rewards.at[at].add(alive * episode.reward),
        )
