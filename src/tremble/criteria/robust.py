"""The worst case over an ambiguity set that shrinks over time: the min-max rule that PQR replaces by a random draw."""

from __future__ import annotations

from typing import Annotated, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.core import Clock, Noise, Scalar
from tremble.criteria.base import Criterion
from tremble.dist import ReturnDist
from tremble.schedules import Schedule
from tremble.settings import NON_NEGATIVE


class WorstCase(Criterion):
    """score(a) = min of E_xi[Z(a)] over the perturbations xi of size Delta_t.

    The size has two readings, as in `Perturbed`; both minima are attained by moving mass to the smallest atom:

    - ``direct``, what the algorithm can draw: xi = 1 + Delta (N x - 1), x on the simplex, clipped and renormalised.
      The minimum is (1 - Delta) mean + Delta min for Delta <= 1, and min from there on.
    - ``gap``, the set of the paper's definition: |E_xi[Z] - E[Z]| <= Delta. The minimum is max(mean - Delta, min).
      It is taken for each action by itself, so until the range of the returns binds it ranks actions as the mean does.
    """

    delta_0: Annotated[Scalar, NON_NEGATIVE] = 500.0
    """Size of the set at t = 1."""
    ambiguity: Literal["direct", "gap"] = eqx.field(static=True, default="direct")
    """What Delta_t measures: the re-weighting, or the distance of its mean from the mean."""
    schedule: Schedule = Schedule()
    """How Delta_t shrinks."""

    def delta(self, clock: Clock) -> Float[Array, ""]:
        """Delta_t."""
        return self.schedule(self.delta_0, clock)

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """The smallest expectation of each action over the set."""
        delta, mean, least = self.delta(clock), dist.mean(), dist.min()
        if self.ambiguity == "gap":
            return jnp.maximum(mean - delta, least)
        share = jnp.minimum(delta, 1.0)
        return (1.0 - share) * mean + share * least

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """The size of the set."""
        return {"delta": self.delta(clock)}
