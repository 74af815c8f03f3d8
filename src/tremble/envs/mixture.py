"""Gaussian mixtures in closed form: ground truths to compare learned distributions with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class GaussianMixture:
    """sum_k weights_k N(means_k, stds_k^2)."""

    weights: Vector
    means: Vector
    stds: Vector

    def affine(self, shift: float, scale: float) -> GaussianMixture:
        """The law of ``shift + scale * Z``."""
        return GaussianMixture(self.weights, shift + scale * self.means, abs(scale) * self.stds)

    def mean(self) -> float:
        """Expected value."""
        return float(self.weights @ self.means)

    def std(self) -> float:
        """Standard deviation."""
        second = self.weights @ (self.means**2 + self.stds**2)
        return float(np.sqrt(max(second - self.mean() ** 2, 0.0)))

    def pdf(self, x: Any) -> Vector:
        """Density at each x."""
        return np.asarray(stats.norm.pdf(np.asarray(x)[..., None], self.means, self.stds) @ self.weights)

    def cdf(self, x: Any) -> Vector:
        """P(Z <= x) at each x."""
        return np.asarray(stats.norm.cdf(np.asarray(x)[..., None], self.means, self.stds) @ self.weights)

    def quantile(self, level: Any) -> Vector:
        """Inverse CDF, by bracketing and Brent's method (closed form for one component)."""
        level = np.asarray(level, float)
        if len(self.means) == 1:
            return np.asarray(stats.norm.ppf(level, self.means[0], self.stds[0]))
        low = float((self.means - 40 * self.stds).min())
        high = float((self.means + 40 * self.stds).max())
        solve = np.vectorize(lambda u: optimize.brentq(lambda x: float(self.cdf(x)) - u, low, high))
        return np.asarray(solve(level))

    def w2(self, atoms: Any, resolution: int = 50) -> float:
        """2-Wasserstein distance to equally weighted atoms.

        int_0^1 (Q(u) - q(u))^2 du with the atoms sorted, each atom's share of levels cut into ``resolution`` midpoints.
        """
        atoms = np.sort(np.asarray(atoms, float))
        n = len(atoms) * resolution
        levels = (np.arange(n) + 0.5) / n
        return float(np.sqrt(np.mean((np.repeat(atoms, resolution) - self.quantile(levels)) ** 2)))
