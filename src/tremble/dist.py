"""A distribution of returns as weighted atoms, and its algebra, written once.

Every representation of a return distribution (one value, a fixed support, quantiles, particles) is a set of weighted
atoms.  All the rest of the library, criteria above all, speaks about returns in these terms only.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

Order = Literal["index", "sorted"]
"""Which atom counts as the k-th: the network's output index (the paper's choice), or the k-th smallest."""


class ReturnDist(eqx.Module):
    """Weighted atoms ``sum_k weights_k * dirac(atoms_k)``; leading axes are independent distributions.

    Shapes: all three arrays are ``[*batch, atoms]``; a network's prediction is ``[actions, atoms]``.

    ``levels`` are the midpoints of the cumulative weights in index order, tau_hat_k = F_{k-1} + w_k / 2: the level
    that atom k stands for.  Omitted weights mean equal mass 1/N (``equal_mass`` is then true, and known at compile
    time, so that means and distortions take their cheap form).
    """

    atoms: Float[Array, "*batch atoms"]
    weights: Float[Array, "*batch atoms"]
    levels: Float[Array, "*batch atoms"]
    equal_mass: bool = eqx.field(static=True)
    own_levels: bool = eqx.field(static=True)
    """Whether the levels were given, rather than computed from the weights."""

    def __init__(self, atoms: ArrayLike, weights: ArrayLike | None = None, levels: ArrayLike | None = None):
        """Build from ``atoms[*batch, n]``; ``weights`` and ``levels`` broadcast against them."""
        atoms = jnp.asarray(atoms)
        if not jnp.issubdtype(atoms.dtype, jnp.floating):
            atoms = atoms.astype(float)
        if atoms.ndim == 0:
            raise ValueError("ReturnDist needs atoms[..., n]; got a scalar. Write atoms[None] for a single atom.")
        if atoms.shape[-1] == 0:
            raise ValueError(f"ReturnDist needs at least one atom; got atoms of shape {atoms.shape}")
        n = atoms.shape[-1]
        self.equal_mass, self.own_levels = weights is None, levels is not None
        if weights is None:
            w = jnp.full((n,), 1.0 / n, atoms.dtype)
        else:
            w = jnp.asarray(weights, atoms.dtype)
            if not isinstance(w, jax.core.Tracer):
                total = np.asarray(w, np.float64).sum(-1)
                if np.any(np.asarray(w) < 0) or not np.allclose(total, 1.0, atol=1e-3):
                    raise ValueError(
                        f"weights must be non-negative and sum to 1 along the last axis; they sum to {total}"
                    )
        if levels is None:
            levels = (jnp.arange(n, dtype=atoms.dtype) + 0.5) / n if self.equal_mass else jnp.cumsum(w, -1) - w / 2
        self.atoms = atoms
        self.weights = jnp.broadcast_to(w, atoms.shape)
        self.levels = jnp.broadcast_to(jnp.asarray(levels, atoms.dtype), atoms.shape)

    def select(self, pick: Callable[[Array], Array]) -> ReturnDist:
        """The distribution made of the picked atoms, weights and (where they were given) levels."""
        weights = None if self.equal_mass else pick(self.weights)
        return ReturnDist(pick(self.atoms), weights, pick(self.levels) if self.own_levels else None)

    def __getitem__(self, index: Any) -> ReturnDist:
        """Select along the leading axes: ``dist[action]`` is the distribution of that action."""
        picked: ReturnDist = jax.tree.map(lambda leaf: leaf[index], self)
        if picked.atoms.shape[-1:] != (self.n_atoms,):
            raise IndexError(f"{index!r} reaches into the atoms of a ReturnDist of shape {self.atoms.shape}")
        return picked

    @property
    def n_atoms(self) -> int:
        """How many atoms each distribution has."""
        return self.atoms.shape[-1]

    def mean(self) -> Float[Array, "*batch"]:
        """E[Z] = sum_k w_k atom_k."""
        return self.atoms.mean(-1) if self.equal_mass else (self.weights * self.atoms).sum(-1)

    def variance(self) -> Float[Array, "*batch"]:
        """Population variance, sum_k w_k (atom_k - mean)^2."""
        return (self.weights * (self.atoms - self.mean()[..., None]) ** 2).sum(-1)

    def std(self) -> Float[Array, "*batch"]:
        """Square root of the population variance."""
        return jnp.sqrt(self.variance())

    def min(self) -> Float[Array, "*batch"]:
        """Smallest atom that carries mass."""
        return jnp.where(self.weights > 0, self.atoms, jnp.inf).min(-1)

    def max(self) -> Float[Array, "*batch"]:
        """Largest atom that carries mass."""
        return jnp.where(self.weights > 0, self.atoms, -jnp.inf).max(-1)

    def cumulative(self) -> Float[Array, "*batch atoms"]:
        """F_k = w_1 + ... + w_k in index order; the last one is exactly 1."""
        if self.equal_mass:
            n = self.n_atoms
            return jnp.broadcast_to(jnp.arange(1, n + 1, dtype=self.atoms.dtype) / n, self.atoms.shape)
        return jnp.cumsum(self.weights, -1).at[..., -1].set(1.0)

    def sorted(self) -> ReturnDist:
        """The same distribution with its atoms in increasing order."""
        if self.equal_mass:
            return ReturnDist(jnp.sort(self.atoms, -1))
        order = jnp.argsort(self.atoms, -1)
        return ReturnDist(jnp.take_along_axis(self.atoms, order, -1), jnp.take_along_axis(self.weights, order, -1))

    def ordered(self, order: Order) -> ReturnDist:
        """Atoms in the asked order: as they are (``index``) or increasing (``sorted``)."""
        return self.sorted() if order == "sorted" else self

    def crossing_rate(self) -> Float[Array, "*batch"]:
        """Share of neighbouring atoms, in the order of their levels, that are out of order."""
        if self.n_atoms < 2:
            return jnp.zeros(self.atoms.shape[:-1], self.atoms.dtype)
        by_level = jnp.argsort(self.levels, -1) if self.own_levels else None
        atoms = self.atoms if by_level is None else jnp.take_along_axis(self.atoms, by_level, -1)
        return (jnp.diff(atoms, axis=-1) < 0).mean(-1, dtype=atoms.dtype)

    def affine(self, shift: ArrayLike, scale: ArrayLike) -> ReturnDist:
        """The law of ``shift + scale * Z``: with reward and discount, the Bellman backup of one transition."""
        shift, scale = jnp.asarray(shift)[..., None], jnp.asarray(scale)[..., None]
        atoms = shift + scale * self.atoms
        # Many rewards on one distribution make many distributions.
        weights, levels = (jnp.broadcast_to(x, atoms.shape) for x in (self.weights, self.levels))
        return eqx.tree_at(lambda d: (d.atoms, d.weights, d.levels), self, (atoms, weights, levels))

    def cdf(self, x: ArrayLike) -> Float[Array, "*batch"]:
        """P(Z <= x), x broadcast against the leading axes."""
        return jnp.where(self.atoms <= jnp.asarray(x)[..., None], self.weights, 0.0).sum(-1)

    def quantile(self, level: ArrayLike) -> Float[Array, "*batch"]:
        """Smallest atom whose cumulative probability reaches ``level`` (the left-continuous inverse of the CDF).

        ``level`` is broadcast against the leading axes.
        """
        ordered = self.sorted()
        reached = ordered.cumulative() >= jnp.asarray(level)[..., None] - 1e-6
        atoms = jnp.broadcast_to(ordered.atoms, reached.shape)
        return jnp.take_along_axis(atoms, jnp.argmax(reached, -1)[..., None], -1)[..., 0]

    def equal_atoms(self) -> Float[Array, "*batch atoms"]:
        """As many atoms of equal mass: itself, or its quantiles at the midpoint levels (i - 1/2)/n."""
        if self.equal_mass:
            return self.atoms
        levels = (jnp.arange(self.n_atoms) + 0.5) / self.n_atoms
        return jnp.moveaxis(jax.vmap(self.quantile)(levels), 0, -1)

    def distorted_mean(self, h: Callable[[Array], Array], order: Order = "sorted") -> Float[Array, "*batch"]:
        """Distortion risk measure rho_h(Z) = sum_k (h(F_k) - h(F_{k-1})) atom_k, for h with h(0)=0, h(1)=1."""
        dist = self.ordered(order)
        upper = h(dist.cumulative())
        lower = jnp.concatenate([jnp.zeros_like(upper[..., :1]), upper[..., :-1]], -1)
        return ((upper - lower) * dist.atoms).sum(-1)

    def cvar(self, eta: ArrayLike) -> Float[Array, "*batch"]:
        """Mean of the lowest ``eta`` share of the mass, 0 < eta <= 1."""
        if isinstance(eta, Real) and not 0 < eta <= 1:  # a traced one cannot be looked at
            raise ValueError(f"eta is a share of the mass, 0 < eta <= 1; got {eta}")
        return self.distorted_mean(lambda u: jnp.minimum(u / eta, 1.0))

    def upper_variance(
        self, order: Order = "index", median: Literal["lower", "upper"] = "lower"
    ) -> Float[Array, "*batch"]:
        """Left-truncated variance of DLTV, sigma_+^2 = 1/2 * int_{1/2}^1 (Q(u) - Q(1/2))^2 du.

        For N equal masses that is 1/(2N) sum_{i >= N/2} (theta_i - theta_{N/2})^2.  An even N has two candidates for
        the median; ``lower`` (1-based N/2) is the paper's, ``upper`` what some code bases take.  An odd N has one.
        """
        dist = self.ordered(order)
        n = dist.n_atoms
        if dist.equal_mass:
            at = n // 2 if (median == "upper" or n % 2 == 1) else n // 2 - 1
            return ((dist.atoms[..., at:] - dist.atoms[..., at : at + 1]) ** 2).sum(-1) / (2 * n)
        upper = dist.cumulative()
        tolerance = -1e-6 if median == "lower" else 1e-6
        at_median = jnp.argmax(upper >= 0.5 + tolerance, -1)[..., None]
        centre = jnp.take_along_axis(dist.atoms, at_median, -1)
        above = jnp.clip(upper - 0.5, 0.0, dist.weights)
        return 0.5 * (above * (dist.atoms - centre) ** 2).sum(-1)

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n *batch"]:
        """``n`` independent draws of the return."""
        shape = (n, *self.atoms.shape[:-1])
        index = jax.random.categorical(key, jnp.log(self.weights), shape=shape)
        return jnp.take_along_axis(self.atoms, jnp.moveaxis(index, 0, -1), -1).transpose(
            (-1, *range(self.atoms.ndim - 1))
        )
