"""Wasserstein distance between two distributions on finitely many atoms, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def wasserstein(
    atoms_a: Any, atoms_b: Any, p: float = 1.0, *, weights_a: Any | None = None, weights_b: Any | None = None
) -> float:
    """W_p = (int_0^1 |Q_a(u) - Q_b(u)|^p du)^(1/p), exact.

    ``atoms[n]`` need not be sorted; without weights every atom has the mass 1/n, and weights are normalised. Both
    quantile functions are constant between neighbouring levels of the two distribution functions, so the integral is a
    sum over the merged levels, in O(n log n).
    """
    (values_a, levels_a), (values_b, levels_b) = _quantiles(atoms_a, weights_a), _quantiles(atoms_b, weights_b)
    levels = np.unique(np.concatenate([levels_a, levels_b]))
    widths = np.diff(levels, prepend=0.0)
    middle = levels - widths / 2
    gap = values_a[np.searchsorted(levels_a, middle)] - values_b[np.searchsorted(levels_b, middle)]
    return float((np.abs(gap) ** p @ widths) ** (1 / p))


def _quantiles(atoms: Any, weights: Any | None) -> tuple[np.ndarray, np.ndarray]:
    """Sorted atoms, and the level up to which each is the quantile; the last level is 1."""
    atoms = np.asarray(atoms, np.float64)
    order = np.argsort(atoms)
    if weights is None:
        return atoms[order], np.arange(1, len(atoms) + 1) / len(atoms)
    levels = np.cumsum(np.asarray(weights, np.float64)[order])
    return atoms[order], levels / levels[-1]
