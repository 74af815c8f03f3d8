"""Distortion risk measures: the mean under a distorted distribution function.

A measure can be given in two forms, each the inverse of the other:

    CDF form    rho(Z) = int z d(h o F)(z)          h says how much mass the lowest u of the mass gets
    level form  rho(Z) = int_0^1 Q(beta(tau)) dtau  beta says at which quantile to look instead of tau

Both are increasing, from 0 at 0 to 1 at 1. h above the diagonal (beta below it) gives bad outcomes more mass: averse.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tremble.criteria.base import RiskMeasure
from tremble.dist import ReturnDist
from tremble.settings import SettingsError, reference

Convention = Literal["cdf", "level"]
"""Which of the two forms a function is: h (``cdf``) or beta (``level``)."""
HALVINGS = 26
"""After so many, an interval of length 1 is below the resolution of float32 near 1."""


def invert(
    increasing: Callable[[Float[Array, "*levels"]], Float[Array, "*levels"]], value: Float[Array, "*levels"]
) -> Float[Array, "*levels"]:
    """x with increasing(x) = value, by bisection on [0, 1]; the ends map to themselves."""

    def halve(_: Any, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        below = increasing(middle) < value
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(value), jnp.ones_like(value)))
    return jnp.where(value <= 0, 0.0, jnp.where(value >= 1, 1.0, (low + high) / 2))


class Distortion(RiskMeasure):
    """A distortion risk measure; a new one defines `cdf_form`."""

    @abstractmethod
    def cdf_form(self, u: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
        """h(u)."""

    def level_form(self, tau: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
        """beta(tau), the inverse of h."""
        return invert(self.cdf_form, tau)

    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """rho_h(Z) = sum_k (h(F_k) - h(F_{k-1})) atom_k over increasing atoms, exact for any weights."""
        # A sum of weights may pass 1 by a rounding error, where not every h is defined.
        return dist.distorted_mean(lambda u: self.cdf_form(jnp.clip(u, 0.0, 1.0)))


def no_distortion(u: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
    """h(u) = u: the mean."""
    return u


class CustomDistortion(Distortion):
    """Mean after a distortion of your own, any function in CDF or level form."""

    function: Callable[[Array], Array] = eqx.field(static=True, default=no_distortion)
    """Elementwise on an array, in `jax.numpy`; on the command line ``function=module:name``."""
    convention: Convention = eqx.field(static=True, default="cdf")
    """Whether the function is h (``cdf``) or beta (``level``), which is then inverted numerically."""

    def __check_init__(self) -> None:
        """Check that the function maps 0 to 0, 1 to 1, and does not decrease."""
        with jax.ensure_compile_time_eval():
            values = np.asarray(self.function(jnp.linspace(0.0, 1.0, 101)), np.float64)
        if values.shape != (101,) or not np.allclose(values[[0, -1]], [0, 1], atol=1e-5):
            raise SettingsError(f"{reference(self.function)} is no distortion: it must map 0 to 0 and 1 to 1")
        if not np.all(np.diff(values) >= -1e-6):
            raise SettingsError(f"{reference(self.function)} is no distortion: it must not fall anywhere in [0, 1]")

    def cdf_form(self, u: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
        """The function, or its inverse."""
        return self.function(u) if self.convention == "cdf" else invert(self.function, u)

    def level_form(self, tau: Float[Array, "*levels"]) -> Float[Array, "*levels"]:
        """The function, or its inverse."""
        return self.function(tau) if self.convention == "level" else invert(self.function, tau)
