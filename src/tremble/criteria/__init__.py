"""Axis B: from a return distribution to one score per action."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tremble.core import Criterion
from tremble.criteria.mean import Mean
from tremble.criteria.optimism import Optimism
from tremble.criteria.perturbed import Perturbed, perturbation, sample_dirichlet, sample_perturbation

CRITERIA: dict[str, Callable[..., Criterion]] = {
    "mean": Mean,
    "dltv": partial(Optimism, draw_law="one"),
    "p_dltv": partial(Optimism, draw_law="normal"),
    "pqr": Perturbed,
}
"""Constructors by name; keyword arguments are the fields of the criterion."""

__all__ = [
    "CRITERIA",
    "Mean",
    "Optimism",
    "Perturbed",
    "perturbation",
    "sample_dirichlet",
    "sample_perturbation",
]
