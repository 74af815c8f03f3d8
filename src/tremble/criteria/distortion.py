"""Distortion risk measures: the mean under a distorted distribution function.

A measure can be given in two forms, each the inverse of the other:

    CDF form    rho(Z) = int z d(h o F)(z)          h says how much mass the lowest u of the mass gets
    level form  rho(Z) = int_0^1 Q(beta(tau)) dtau  beta says at which quantile to look instead of tau

Both are increasing, from 0 at 0 to 1 at 1. h above the diagonal (beta below it) gives bad outcomes more mass: averse.
Default parameters of the measures are those of the IQN experiments.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from tremble.core import Scalar
from tremble.criteria.base import RiskMeasure
from tremble.dist import ReturnDist
from tremble.settings import POSITIVE_SHARE, Range, SettingsError, reference

Levels = Float[Array, "*levels"]
Convention = Literal["cdf", "level"]
"""Which of the two forms a function is: h (``cdf``) or beta (``level``)."""
HALVINGS = 26
"""After so many, an interval of length 1 is below the resolution of float32 near 1."""


def invert(increasing: Callable[[Levels], Levels], value: Levels) -> Levels:
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
    def cdf_form(self, u: Levels) -> Levels:
        """h(u)."""

    def level_form(self, tau: Levels) -> Levels:
        """beta(tau), the inverse of h."""
        return invert(self.cdf_form, tau)

    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """rho_h(Z) = sum_k (h(F_k) - h(F_{k-1})) atom_k over increasing atoms, exact for any weights."""
        # A sum of weights may pass 1 by a rounding error, where not every h is defined.
        return dist.distorted_mean(lambda u: self.cdf_form(jnp.clip(u, 0.0, 1.0)))


class CVaR(Distortion):
    """Mean of the lowest eta share of the mass."""

    eta: Annotated[Scalar, POSITIVE_SHARE] = 0.25
    """The share: 1 is the mean, near 0 the worst outcome."""

    def cdf_form(self, u: Levels) -> Levels:
        """h(u) = min(u / eta, 1)."""
        return jnp.minimum(u / self.eta, 1.0)

    def level_form(self, tau: Levels) -> Levels:
        """beta(tau) = eta tau."""
        return self.eta * tau


class VaR(Distortion):
    """The eta-quantile: value at risk."""

    eta: Annotated[Scalar, POSITIVE_SHARE] = 0.25
    """The level; 1/2 is the median."""

    def cdf_form(self, u: Levels) -> Levels:
        """h(u) = 1 where u >= eta, else 0; a rounding error below eta counts as eta."""
        return (u >= self.eta - 1e-6).astype(u.dtype)

    def level_form(self, tau: Levels) -> Levels:
        """beta(tau) = eta."""
        return jnp.full_like(tau, self.eta)


class Wang(Distortion):
    """Shift by eta in units of a normal law: m + eta s on N(m, s^2); eta < 0 is averse."""

    eta: Scalar = -0.75
    """The shift."""

    def cdf_form(self, u: Levels) -> Levels:
        """h(u) = Phi(Phi^-1(u) - eta)."""
        return ndtr(ndtri(u) - self.eta)

    def level_form(self, tau: Levels) -> Levels:
        """beta(tau) = Phi(Phi^-1(tau) + eta)."""
        return ndtr(ndtri(tau) + self.eta)


class Power(Distortion):
    """Power of the level, p = 1 + |eta|; eta < 0 is averse."""

    eta: Scalar = -2.0
    """0 is the mean. Minus a whole number n: the expected worst of 1 + n outcomes; plus: the expected best."""

    def cdf_form(self, u: Levels) -> Levels:
        """h(u) = u^p for eta >= 0, 1 - (1 - u)^p for eta < 0."""
        p = 1.0 + jnp.abs(self.eta)
        return jnp.where(jnp.asarray(self.eta) >= 0, u**p, 1.0 - (1.0 - u) ** p)

    def level_form(self, tau: Levels) -> Levels:
        """beta(tau) = tau^(1/p) for eta >= 0, 1 - (1 - tau)^(1/p) for eta < 0."""
        q = 1.0 / (1.0 + jnp.abs(self.eta))
        return jnp.where(jnp.asarray(self.eta) >= 0, tau**q, 1.0 - (1.0 - tau) ** q)


class CPW(Distortion):
    """The weighting of cumulative prospect theory, g(x) = x^eta / (x^eta + (1 - x)^eta)^(1/eta)."""

    eta: Annotated[Scalar, Range(0.28, above=True)] = 0.71
    """1 is the mean; the weighting increases above 0.28 only."""
    convention: Convention = eqx.field(static=True, default="level")
    """IQN takes beta = g (``level``), prospect theory distorts probabilities by it, h = g (``cdf``). Below 1 the first
    weights both tails less, the second more."""

    def weighting(self, x: Levels) -> Levels:
        """g(x)."""
        risen = x**self.eta
        return risen / (risen + (1.0 - x) ** self.eta) ** (1.0 / self.eta)

    def cdf_form(self, u: Levels) -> Levels:
        """h(u) = g(u), or its inverse."""
        return self.weighting(u) if self.convention == "cdf" else invert(self.weighting, u)

    def level_form(self, tau: Levels) -> Levels:
        """beta(tau) = g(tau), or its inverse."""
        return self.weighting(tau) if self.convention == "level" else invert(self.weighting, tau)


class Norm(Distortion):
    """Mean at levels drawn as means of eta uniform numbers: trims both tails, neither averse nor seeking.

    Its level form as published is random; `level_form` is the quantile function of that law.
    """

    eta: Annotated[int, Range(1, 12)] = eqx.field(static=True, default=3)
    """How many: 1 is the mean, many the median. Above 12 the sum loses its digits in float32."""

    def cdf_form(self, u: Levels) -> Levels:
        """h(u) = sum_{k <= n u} (-1)^k C(n, k) (n u - k)^n / n!, n = eta: the Bates distribution function."""
        n = self.eta
        # Upper levels by symmetry: there the terms of the sum would be large and cancel.
        lower = n * jnp.minimum(u, 1.0 - u)
        terms = [(-1) ** k * math.comb(n, k) / math.factorial(n) * jnp.maximum(lower - k, 0.0) ** n for k in range(n)]
        half = jnp.stack(terms).sum(0)
        return jnp.where(u <= 0.5, half, 1.0 - half)


def no_distortion(u: Levels) -> Levels:
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

    def cdf_form(self, u: Levels) -> Levels:
        """The function, or its inverse."""
        return self.function(u) if self.convention == "cdf" else invert(self.function, u)

    def level_form(self, tau: Levels) -> Levels:
        """The function, or its inverse."""
        return self.function(tau) if self.convention == "level" else invert(self.function, tau)
