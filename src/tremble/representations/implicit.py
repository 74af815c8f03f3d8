"""Quantiles at sampled levels, as in IQN."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Use
from tremble.dist import ReturnDist
from tremble.networks import ImplicitHead
from tremble.representations.base import DETERMINISTIC, Query, Representation
from tremble.representations.quantile import quantile_losses
from tremble.settings import NON_NEGATIVE, SIZE


def midpoints(n: int) -> Float[Array, "n"]:
    """(i - 1/2)/n."""
    return (jnp.arange(n) + 0.5) / n


def draw_levels(key: PRNGKeyArray, batch: int, n: int, use: Use) -> Float[Array, "batch n"]:
    """tau ~ U(0, 1), independent for every sample.

    Criteria read distributions in index order, so levels to choose by are sorted before they are used. Losses and
    targets do not care about order, and there sorting would be a large part of drawing.
    """
    drawn = jax.random.uniform(key, (batch, n))
    return jnp.sort(drawn, -1) if use == "choose" else drawn


class Implicit(Representation):
    """Z at levels tau ~ U(0, 1), drawn afresh for every prediction and given to the network as an input.

    Levels to choose an action by are sorted after drawing: as a set they stay independent draws, and the index of an
    atom is its rank.
    """

    random_levels = True
    n_online: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Levels of the prediction that is trained."""
    n_target: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Levels of the target."""
    n_choose: Annotated[int, SIZE] = eqx.field(static=True, default=32)
    """Levels when an action is chosen."""
    kappa: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=1.0)
    """Threshold of the Huber loss: quadratic below, linear above."""
    n_cosines: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Cosines that a level is embedded by."""
    n_hidden: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Width of the layer behind the product; 0 means as wide as the features."""
    choose_levels: Literal["random", "midpoints"] = eqx.field(static=True, default="random")
    """Levels when an action is chosen: as published, or evenly spaced, which is what a spiky re-weighting wants."""

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> ImplicitHead:
        """A network of features and level."""
        return ImplicitHead(key, n_features, n_actions, self.n_cosines, self.n_hidden, dueling, noisy)

    def levels(self, use: Use, key: PRNGKeyArray | None, batch: int) -> Float[Array, "#batch n"]:
        """Levels to evaluate at: evenly spaced, and the same for all samples, without a key."""
        n = {"choose": self.n_choose, "target": self.n_target, "online": self.n_online}[use]
        if key is None or (use == "choose" and self.choose_levels == "midpoints"):
            return midpoints(n)[None]
        return draw_levels(key, batch, n, use)

    def predict(
        self, head: ImplicitHead, features: Float[Array, "batch features"], query: Query = DETERMINISTIC
    ) -> ReturnDist:
        """``atoms[batch, actions, n]`` of equal mass, at ``levels[batch, n]``."""
        levels = self.levels(query.use, query.level_key, features.shape[0])
        return ReturnDist(head(features, levels, query.layer_key), levels=levels[:, None])

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """sum_i mean_j rho_{tau_i}(target_j - predicted_i)."""
        return quantile_losses(predicted, target, self.kappa)
