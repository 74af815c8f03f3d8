"""Quantiles at sampled levels, as in IQN."""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Use
from tremble.dist import ReturnDist
from tremble.losses import quantile_huber
from tremble.networks import ImplicitHead


def midpoints(n: int) -> Float[Array, "n"]:
    """(i - 1/2)/n."""
    return (jnp.arange(n) + 0.5) / n


class Implicit(eqx.Module):
    """Z at levels tau ~ U(0, 1), drawn afresh for every prediction and given to the network as an input.

    Levels are drawn and then sorted: they stay independent draws as a set, and the order of the atoms means something.
    """

    n_online: int = eqx.field(static=True, default=64)
    """Levels of the prediction that is trained."""
    n_target: int = eqx.field(static=True, default=64)
    """Levels of the target."""
    n_choose: int = eqx.field(static=True, default=32)
    """Levels when an action is chosen."""
    kappa: float = eqx.field(static=True, default=1.0)
    n_cosines: int = eqx.field(static=True, default=64)
    n_hidden: int = eqx.field(static=True, default=0)
    """Width of the layer behind the product; 0 means as wide as the features."""
    choose_levels: Literal["random", "midpoints"] = eqx.field(static=True, default="random")
    """Levels when an action is chosen: as published, or evenly spaced, which is what a spiky re-weighting wants."""

    @property
    def random_levels(self) -> bool:
        """Predictions need a key of their own."""
        return True

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> ImplicitHead:
        """A network of features and level."""
        return ImplicitHead(key, n_features, n_actions, self.n_cosines, self.n_hidden, dueling, noisy)

    def levels(self, use: Use, key: PRNGKeyArray | None) -> Float[Array, "n"]:
        """Where to evaluate: without a key, evenly spaced."""
        n = {"choose": self.n_choose, "target": self.n_target, "online": self.n_online}[use]
        if key is None or (use == "choose" and self.choose_levels == "midpoints"):
            return midpoints(n)
        return jnp.sort(jax.random.uniform(key, (n,)))

    def predict(
        self,
        head: ImplicitHead,
        features: Float[Array, "features"],
        use: Use = "choose",
        level_key: PRNGKeyArray | None = None,
        layer_key: PRNGKeyArray | None = None,
    ) -> ReturnDist:
        """``atoms[actions, n]`` of equal mass, at ``levels[n]``."""
        levels = self.levels(use, level_key)
        return ReturnDist(head(features, levels, layer_key), levels=levels)

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """sum_i mean_j rho_{tau_i}(target_j - predicted_i)."""
        return quantile_huber(predicted.atoms, target.atoms, predicted.levels, self.kappa)
