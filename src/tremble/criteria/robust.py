"""The worst case over an ambiguity set that shrinks over time: the min-max rule PQR randomises instead."""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble import schedules
from tremble.core import Clock, Noise, Scalar, TimeOrigin, TimeUnit
from tremble.dist import ReturnDist


class WorstCase(eqx.Module):
    """score(a) = min of E_xi[Z(a)] over the perturbations xi of size Delta_t.

    The size has two readings, as in `Perturbed`; both minima are attained by moving mass to the smallest atom:

    - ``direct``, what the algorithm can draw: xi = 1 + Delta (N x - 1), x on the simplex, clipped and renormalised.
      The minimum is (1 - Delta) mean + Delta min for Delta <= 1, and min from there on.
    - ``gap``, the set of the paper's definition: |E_xi[Z] - E[Z]| <= Delta. The minimum is max(mean - Delta, min).
      It is taken for each action by itself, so until the range of the returns binds it ranks actions as the mean does.
    """

    delta_0: Scalar = 500.0
    """Size of the set at t = 1."""
    schedule_epsilon: Scalar = 0.001
    """Delta_t = delta_0 t^-(1 + schedule_epsilon) under the ``power`` schedule."""
    ambiguity: Literal["direct", "gap"] = eqx.field(static=True, default="direct")
    """What Delta_t measures: the re-weighting, or the distance of its mean from the mean."""
    schedule: schedules.ScheduleName = eqx.field(static=True, default="power")
    """How Delta_t shrinks."""
    t_unit: TimeUnit = eqx.field(static=True, default="transitions")
    """Which counter t reads."""
    t_origin: TimeOrigin = eqx.field(static=True, default="zero")
    """Whether t counts from the start of the run or from the start of learning."""

    def draw(self, key: PRNGKeyArray) -> Noise:
        """Nothing to draw."""
        return ()

    def delta(self, clock: Clock) -> Float[Array, ""]:
        """Delta_t."""
        t = clock.time(self.t_unit, self.t_origin)
        return schedules.by_name(self.schedule, t, self.delta_0, self.schedule_epsilon)

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """The least expectation of each action."""
        delta, mean, least = self.delta(clock), dist.mean(), dist.min()
        if self.ambiguity == "gap":
            return jnp.maximum(mean - delta, least)
        share = jnp.minimum(delta, 1.0)
        return (1.0 - share) * mean + share * least

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """The size of the set."""
        return {"delta": self.delta(clock)}
