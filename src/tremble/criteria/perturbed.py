"""PQR: a randomised risk criterion whose distance from the mean shrinks over time.

The quantiles of every action are re-weighted with one random vector xi >= 0 of mean 1. The score is a weighted average
of the quantiles, so it never leaves their range; at xi = 1 it is the mean.
"""

from __future__ import annotations

from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from tremble.core import Clock, Noise, Scalar
from tremble.criteria.base import Criterion
from tremble.criteria.gamma import log_gammas
from tremble.dist import Order, ReturnDist
from tremble.schedules import Schedule
from tremble.settings import NON_NEGATIVE, POSITIVE, SIZE


def sample_dirichlet(key: PRNGKeyArray, n: int, beta: ArrayLike) -> Float[Array, "n"]:
    """x ~ Dir(beta, ..., beta), by normalising gamma variables in logarithms (in float32 Gamma(0.05) underflows)."""
    return jax.nn.softmax(log_gammas(key, n, jnp.asarray(beta, float)))


def perturbation(x: Float[Array, "n"], delta: ArrayLike) -> Float[Array, "n"]:
    """xi = N v / sum(v) with v = max(1 + delta (N x - 1), 0): Algorithm 1 of the paper, lines 3 and 4.

    For delta <= 1 nothing is clipped, the weighted mean is (1 - delta) mean + delta sum_i x_i theta_i, unbiased for the
    mean and of variance delta^2 Var(theta) / (N beta + 1).
    """
    n = x.shape[-1]
    v = jnp.maximum(1.0 + delta * (n * x - 1.0), 0.0)
    return v * (n / v.sum(-1, keepdims=True))


def sample_perturbation(key: PRNGKeyArray, n: int, delta: ArrayLike, beta: ArrayLike = 0.05) -> Float[Array, "n"]:
    """One draw of the re-weighting xi[n]: 0 <= xi <= n, mean 1, E[xi_i] = 1."""
    return perturbation(sample_dirichlet(key, n, beta), delta)


def reweighted_mean(dist: ReturnDist, xi: Float[Array, "n_bins"], order: Order = "index") -> Float[Array, "*batch"]:
    """E_xi[Z]: the mean under a density ``xi`` over equal bins of levels."""
    n_bins = xi.shape[-1]
    if dist.equal_mass and dist.n_atoms == n_bins:
        return jnp.matmul(dist.ordered(order).atoms, xi / n_bins, precision=jax.lax.Precision.HIGHEST)
    edges = jnp.linspace(0.0, 1.0, n_bins + 1)
    mass = jnp.concatenate([jnp.zeros(1), jnp.cumsum(xi) / n_bins])
    mass = mass / mass[-1]
    return dist.distorted_mean(lambda u: jnp.interp(u, edges, mass), order)


class Perturbed(Criterion):
    """score(a) = E_xi[Z(a)] = (1/N) sum_i xi_i theta_i(a), xi of size Delta_t = delta_0 t^-(1 + epsilon).

    On any weighted atoms, xi is a density over ``n_bins`` equal bins of *levels*: a random piecewise-linear distortion
    h with h(k/n_bins) = (xi_1 + ... + xi_k)/n_bins. For a quantile head with as many outputs as bins that is the
    paper's re-weighting by output index.
    """

    delta_0: Annotated[Scalar, NON_NEGATIVE] = 500.0
    """Size of the perturbation at t = 1."""
    beta: Annotated[Scalar, POSITIVE] = 0.05
    """Concentration of the Dirichlet law; smaller is spikier. The spread of the score goes with 1/(n_bins beta + 1)."""
    v_max: Annotated[Scalar, POSITIVE] = 130.0
    """Bound of the returns; read by ``alpha = "theory"`` only (N-Chain: 13/(1 - 0.9))."""
    n_bins: Annotated[int, SIZE] = eqx.field(static=True, default=200)
    """Into how many levels xi cuts [0, 1]; the number of quantiles of the head, unless you want otherwise."""
    schedule: Schedule = Schedule("power")
    """How Delta_t shrinks: delta_0 t^-(1 + epsilon) by default."""
    draw_law: Literal["dirichlet", "top"] = eqx.field(static=True, default="dirichlet")
    """``dirichlet`` randomises; ``top`` puts all of x on the highest level: optimism, the paper's OPT ablation."""
    alpha: Literal["direct", "theory"] = eqx.field(static=True, default="direct")
    """``direct``: Delta_t multiplies N x - 1, as in the algorithm. ``theory``: Delta_t / ((N - 1) v_max) does, which
    bounds the gap by Delta_t but is inert in practice."""
    order: Order = eqx.field(static=True, default="index")
    """Quantiles by output index (the paper) or sorted first."""

    def draw(self, key: PRNGKeyArray) -> Noise:
        """x[n_bins] on the simplex; its size is applied in `score`, so a held draw still shrinks."""
        if self.draw_law == "top":
            return ()
        return sample_dirichlet(key, self.n_bins, self.beta)

    def delta(self, clock: Clock) -> Float[Array, ""]:
        """Delta_t."""
        return self.schedule(self.delta_0, clock)

    def weights(self, noise: Noise, clock: Clock) -> Float[Array, "n_bins"]:
        """xi at this time, from what was drawn."""
        x = jax.nn.one_hot(self.n_bins - 1, self.n_bins) if self.draw_law == "top" else noise
        size = self.delta(clock)
        if self.alpha == "theory":
            size = size / (max(self.n_bins - 1, 1) * self.v_max)
        return perturbation(x, size)

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """E_xi of each action, with the same xi for all."""
        return reweighted_mean(dist, self.weights(noise, clock), self.order)

    def effective_share(self, noise: Noise, clock: Clock) -> Float[Array, ""]:
        """Effective sample size of xi over its length: 1 is the mean, 1/n_bins a single level."""
        xi = self.weights(noise, clock)
        return xi.sum() ** 2 / (xi**2).sum() / self.n_bins

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Size of the perturbation, and the effective share of the levels that this draw weights."""
        return {"delta": self.delta(clock), "xi_effective_share": self.effective_share(noise, clock)}
