"""Particles without levels, matched to the target by all moments at once, as in MMDQN."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Use
from tremble.dist import ReturnDist
from tremble.losses import squared_mmd
from tremble.networks import Head, make_head


class Particles(eqx.Module):
    """N atoms of mass 1/N in no order, trained by the squared maximum mean discrepancy to the target."""

    actions_apart: ClassVar[bool] = True
    n_particles: int = eqx.field(static=True, default=200)
    n_bandwidths: int = eqx.field(static=True, default=10)
    """The kernel is sum_h exp(-d^2/h) over h = 1 .. n_bandwidths."""

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Head:
        """N outputs per action."""
        return make_head(key, n_features, n_actions, self.n_particles, dueling, noisy)

    def predict(
        self,
        head: Head,
        features: Float[Array, "features"],
        use: Use = "choose",
        level_key: PRNGKeyArray | None = None,
        layer_key: PRNGKeyArray | None = None,
    ) -> ReturnDist:
        """``atoms[actions, N]``. Criteria that speak of levels should sort them first (``order = "sorted"``)."""
        return ReturnDist(head(features, layer_key))

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """MMD^2 between the two sets of particles."""
        return squared_mmd(predicted.atoms, target.atoms, self.n_bandwidths)
