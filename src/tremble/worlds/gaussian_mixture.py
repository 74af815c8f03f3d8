"""Gaussian mixtures in closed form: exact returns to compare learned distributions with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from tremble.wasserstein import wasserstein

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
        return float(np.sqrt(max(float(second) - self.mean() ** 2, 0.0)))

    def pdf(self, x: Any) -> Vector:
        """Density at each x (all standard deviations positive)."""
        return np.asarray(stats.norm.pdf(np.asarray(x)[..., None], self.means, self.stds) @ self.weights)

    def cdf(self, x: Any) -> Vector:
        """P(Z <= x) at each x; a component of standard deviation 0 is a point mass."""
        gap = np.asarray(x, float)[..., None] - self.means
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(self.stds > 0, special.ndtr(gap / self.stds), gap >= 0)
        return np.asarray(parts @ self.weights)

    def quantile(self, level: Any) -> Vector:
        """Smallest x with P(Z <= x) >= level, 0 < level < 1, by bisection (closed form for one component).

        The quantiles of the components at the same level bracket the mixture's.
        """
        level = np.asarray(level, float)
        ends = self.means + self.stds * special.ndtri(level)[..., None]
        low, high = ends.min(-1), ends.max(-1)
        if len(self.means) == 1:
            return np.asarray(high)
        for _ in range(64):
            middle = (low + high) / 2
            below = self.cdf(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(high)

    def w2(self, atoms: Any, resolution: int = 50) -> float:
        """2-Wasserstein distance to equally weighted atoms, as (int_0^1 (Q(u) - q(u))^2 du)^(1/2).

        The mixture is continuous, so it is first replaced by its quantiles at the midpoints of ``resolution`` equal
        parts of each atom's levels; between those atoms the distance is exact.
        """
        n = len(atoms) * resolution
        return wasserstein(atoms, self.quantile((np.arange(n) + 0.5) / n), 2)
