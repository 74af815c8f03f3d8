"""Schedules as plain functions of a step t >= 1, and their names."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.core import Scalar

ScheduleName = Literal["power", "const", "sqrt_log"]
Step = int | float | Float[Array, "*t"]


def constant(t: Step, scale: Scalar) -> Float[Array, "*t"]:
    """Scale, whatever t is."""
    return jnp.broadcast_to(jnp.asarray(scale, float), jnp.shape(t))


def linear(t: Step, start: Scalar, end: Scalar, steps: Scalar) -> Float[Array, "*t"]:
    """From ``start`` at t = 1 in a straight line to ``end`` at t = 1 + steps, and there it stays."""
    done = jnp.clip((jnp.asarray(t, float) - 1.0) / jnp.maximum(steps, 1), 0.0, 1.0)
    return start + done * (jnp.asarray(end, float) - start)


def power(t: Step, scale: Scalar, epsilon: Scalar = 0.001) -> Float[Array, "*t"]:
    """scale * t^-(1 + epsilon): summable, the default of the paper."""
    return scale * jnp.asarray(t, float) ** -(1.0 + jnp.asarray(epsilon))


def sqrt_log(t: Step, scale: Scalar) -> Float[Array, "*t"]:
    """scale * sqrt(log t / t): the schedule of optimism; 0 at t = 1, largest at t = e."""
    t = jnp.asarray(t, float)
    return scale * jnp.sqrt(jnp.log(t) / t)


def by_name(name: ScheduleName, t: Step, scale: Scalar, epsilon: Scalar) -> Float[Array, "*t"]:
    """Evaluate a named schedule; ``epsilon`` matters to ``power`` only."""
    if name == "power":
        return power(t, scale, epsilon)
    if name == "sqrt_log":
        return sqrt_log(t, scale)
    if name == "const":
        return constant(t, scale)
    raise ValueError(f"unknown schedule {name!r}; choose power, const or sqrt_log")
