"""Tabular QR, PQR, DLTV and p-DLTV: a table of quantiles with the criteria of the deep agents."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.choosers import Chooser, draw_choice
from tremble.core import Clock, Scalar
from tremble.criteria import Criterion, Mean
from tremble.dist import ReturnDist
from tremble.theory.episodes import Episode, Index


class Table(eqx.Module):
    """Beliefs: quantiles of every return, and visit counts."""

    quantiles: Float[Array, "states actions n"]
    visits: Float[Array, "states actions"]


class QuantileLearner(eqx.Module):
    """theta_i(s, a) += rate_k (tau_i - share of targets r + gamma theta_j(s', a*) below theta_i(s, a)).

    Stochastic quantile regression, with a rate that falls with the number k of visits. The criterion scores actions
    for behaviour and, with a draw of its own, selects a* of the target; targets use the plain quantiles. An episode is
    learned from its end to its start, so that a reward propagates along the whole episode.
    """

    criterion: Criterion = Mean()
    chooser: Chooser = Chooser()
    rate: Scalar = 0.5
    """Step of the first update, in units of reward; set it near the size of the rewards."""
    decay: Scalar = 0.6
    """rate_k = rate k^-decay."""
    spread: Scalar = 1.0
    """Standard deviation of the initial, independent quantiles. With 0 the criteria could not explore: all quantiles of
    an untried action would be equal."""
    n_quantiles: int = eqx.field(static=True, default=32)
    resample_noise_every: bool = eqx.field(static=True, default=False)
    """Keep one draw of the criterion for the whole episode instead of one per step."""

    def init(self, n_states: int, n_actions: int, key: PRNGKeyArray) -> Table:
        """Random quantiles."""
        quantiles = self.spread * jax.random.normal(key, (n_states, n_actions, self.n_quantiles))
        return Table(quantiles, jnp.zeros((n_states, n_actions)))

    def begin(self, belief: Table, key: PRNGKeyArray, clock: Clock) -> Any:
        """The draw for the whole episode."""
        return self.criterion.draw(key) if self.resample_noise_every else ()

    def act(self, belief: Table, plan: Any, state: Index, key: PRNGKeyArray, clock: Clock) -> Index:
        """By the criterion's score, or at random as the chooser says."""
        draw_key, choice_key = jax.random.split(key)
        noise = plan if self.resample_noise_every else self.criterion.draw(draw_key)
        scores = self.criterion.score(ReturnDist(belief.quantiles[state]), noise, clock)
        return self.chooser.choose(scores, None, draw_choice(choice_key, scores.shape[0]), clock)

    def learn(self, belief: Table, episode: Episode, key: PRNGKeyArray, clock: Clock) -> Table:
        """Quantile regression, backwards through the episode."""
        levels = (jnp.arange(self.n_quantiles) + 0.5) / self.n_quantiles

        def update(table: Table, inputs: tuple[Episode, PRNGKeyArray]) -> tuple[Table, None]:
            seen, draw_key = inputs
            future = ReturnDist(table.quantiles[seen.following])
            best = jnp.argmax(self.criterion.score(future, self.criterion.draw(draw_key), clock))
            target = seen.reward + seen.discount * future.atoms[best]
            at = (seen.state, seen.action)
            theta, visits = table.quantiles[at], table.visits[at] + 1
            below = (target[None, :] < theta[:, None]).mean(-1)
            new = theta + self.rate * visits**-self.decay * (levels - below)
            return Table(
                table.quantiles.at[at].set(jnp.where(seen.alive, new, theta)),
                table.visits.at[at].add(seen.alive),
            ), None

        keys = jax.random.split(key, episode.state.shape[0])
        return jax.lax.scan(update, belief, (episode, keys), reverse=True)[0]
