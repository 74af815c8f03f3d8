"""Risk measures that are not distortions: they depend on the scale of the returns."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.core import Scalar
from tremble.criteria.base import RiskMeasure
from tremble.dist import ReturnDist


class MeanVariance(RiskMeasure):
    """score(a) = E[Z(a)] - aversion Var[Z(a)]; it may leave the range of the returns."""

    aversion: Scalar = 1.0
    """Positive is averse, 0 the mean. In units of 1 / return."""

    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """Mean minus variance."""
        return dist.mean() - self.aversion * dist.variance()


def exponential_equivalent(dist: ReturnDist, aversion: Scalar) -> Float[Array, "*batch"]:
    """The sure return worth as much as Z to u(z) = -sign(a) exp(-a z): -log(E exp(-a Z)) / a, and E[Z] at a = 0."""
    a = jnp.asarray(aversion, dist.atoms.dtype)
    exponent = jnp.where(dist.weights > 0, -a * dist.atoms, -jnp.inf)
    largest = exponent.max(-1, keepdims=True)
    ratio = (dist.weights * jnp.exp(exponent - largest)).sum(-1)
    # Near 1 its logarithm would lose all digits of a small aversion; near 0 the other form would.
    excess = (dist.weights * jnp.expm1(exponent - largest)).sum(-1)
    logarithm = largest[..., 0] + jnp.where(ratio > 0.5, jnp.log1p(excess), jnp.log(ratio))
    return jnp.where(a == 0, dist.mean(), -logarithm / jnp.where(a == 0, 1.0, a))


class Utility(RiskMeasure):
    """score(a) = E[u(Z(a))] for your own u; without one, the certainty equivalent of exponential utility.

    The equivalent, with a the aversion: -log(E exp(-a Z)) / a, which is m - a s^2 / 2 on N(m, s^2).
    """

    aversion: Scalar = 1.0
    """Of the exponential utility: positive is averse, 0 the mean. In units of 1 / return."""
    function: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    """u, elementwise on an array, in `jax.numpy`; on the command line ``function=module:name``. Concave is averse."""

    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """Expected utility, or certainty equivalent."""
        if self.function is None:
            return exponential_equivalent(dist, self.aversion)
        # An atom without mass may lie where u has no value.
        values = jnp.where(dist.weights > 0, self.function(dist.atoms), 0.0)
        return (dist.weights * values).sum(-1)
