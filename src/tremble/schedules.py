"""Schedules: sizes as functions of a step t >= 1, and `Schedule`, which says what t counts."""

from __future__ import annotations

from typing import Annotated, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.core import Clock, Scalar, Settings, TimeOrigin, TimeUnit
from tremble.settings import Range

Step = int | float | Float[Array, "*t"]


def constant(t: Step, scale: Scalar) -> Float[Array, "*t"]:
    """The scale at every t."""
    return jnp.broadcast_to(jnp.asarray(scale, float), jnp.shape(t))


def linear(t: Step, start: Scalar, end: Scalar, steps: Scalar) -> Float[Array, "*t"]:
    """Linear from ``start`` at t = 1 to ``end`` at t = 1 + steps, then ``end``."""
    done = jnp.clip((jnp.asarray(t, float) - 1.0) / jnp.maximum(steps, 1), 0.0, 1.0)
    return start + done * (jnp.asarray(end, float) - start)


def power(t: Step, scale: Scalar, epsilon: Scalar = 0.001) -> Float[Array, "*t"]:
    """scale * t^-(1 + epsilon): summable, the default of the paper."""
    return scale * jnp.asarray(t, float) ** -(1.0 + jnp.asarray(epsilon))


def sqrt_log(t: Step, scale: Scalar) -> Float[Array, "*t"]:
    """scale * sqrt(log t / t): the schedule of DLTV; 0 at t = 1, largest at t = e."""
    t = jnp.asarray(t, float)
    return scale * jnp.sqrt(jnp.log(t) / t)


class Schedule(Settings):
    """A size that shrinks over training: Delta_t of PQR, c_t of DLTV. Call it with the scale and the clock."""

    kind: Literal["power", "const", "sqrt_log"] = eqx.field(static=True, default="power")
    """scale t^-(1 + epsilon), the scale itself, or scale sqrt(log t / t)."""
    schedule_epsilon: Annotated[Scalar, Range(-1)] = 0.001
    """epsilon of ``power``; the others do not read it."""
    t_unit: TimeUnit = eqx.field(static=True, default="transitions")
    """Which counter of the clock t is."""
    t_origin: TimeOrigin = eqx.field(static=True, default="zero")
    """Whether t counts from the start of the run or from the start of learning."""

    def __call__(self, scale: Scalar, clock: Clock) -> Float[Array, ""]:
        """The size at this time."""
        t = clock.time(self.t_unit, self.t_origin)
        if self.kind == "power":
            return power(t, scale, self.schedule_epsilon)
        return sqrt_log(t, scale) if self.kind == "sqrt_log" else constant(t, scale)
