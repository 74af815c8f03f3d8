"""Optimism in the face of uncertainty: DLTV, and its randomised variant p-DLTV."""

from __future__ import annotations

from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Clock, Noise, Scalar
from tremble.criteria.base import Criterion
from tremble.dist import Order, ReturnDist
from tremble.schedules import Schedule
from tremble.settings import NON_NEGATIVE


class Optimism(Criterion):
    """score(a) = E[Z(a)] + c_t g sqrt(sigma_+^2(a)), with c_t = c sqrt(log t / t).

    g = 1 is DLTV (``draw_law = "one"``); g ~ N(0, 1) is p-DLTV (``draw_law = "normal"``), whose coefficient is then
    c N(0, log t / t), the second argument being the variance. One g serves all actions.

    The score may leave the range of the predicted returns; PQR's cannot.
    """

    c: Annotated[Scalar, NON_NEGATIVE] = 50.0
    """Coefficient of the bonus (50 on N-Chain)."""
    draw_law: Literal["one", "normal"] = eqx.field(static=True, default="one")
    """The law of g: the constant one (DLTV) or standard normal (p-DLTV)."""
    schedule: Schedule = Schedule("sqrt_log")
    """How c_t shrinks."""
    bonus: Literal["deviation", "variance"] = eqx.field(static=True, default="deviation")
    """The square root of sigma_+^2, as published, or sigma_+^2 itself, as in some code bases."""
    bonus_factor: Literal["half", "two"] = eqx.field(static=True, default="half")
    """sigma_+^2 = factor * integral over the upper half: 1/(2N) sum (the paper) or 2/N sum (a mean square)."""
    median: Literal["lower", "upper"] = eqx.field(static=True, default="lower")
    """Which of the two middle quantiles of an even N is the median."""
    order: Order = eqx.field(static=True, default="index")
    """Quantiles by output index (the paper) or sorted first."""

    def draw(self, key: PRNGKeyArray) -> Noise:
        """g: a standard normal number for p-DLTV, nothing for DLTV."""
        return jax.random.normal(key) if self.draw_law == "normal" else ()

    def coefficient(self, clock: Clock) -> Float[Array, ""]:
        """c_t, before it is multiplied by g."""
        return self.schedule(self.c, clock)

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """Mean plus (randomised) bonus."""
        spread = dist.upper_variance(self.order, self.median)
        if self.bonus_factor == "two":
            spread = 4.0 * spread
        if self.bonus == "deviation":
            spread = jnp.sqrt(spread)
        sign = noise if self.draw_law == "normal" else 1.0
        return dist.mean() + self.coefficient(clock) * sign * spread

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """The coefficient, before it is randomised."""
        return {"coefficient": self.coefficient(clock)}
