"""Axis A: how the return is predicted, and what divergence trains it."""

from __future__ import annotations

from collections.abc import Callable

from tremble.core import Representation
from tremble.representations.categorical import Categorical
from tremble.representations.expected import Expected
from tremble.representations.fully_parameterised import FullyParameterised
from tremble.representations.implicit import Implicit
from tremble.representations.particles import Particles
from tremble.representations.quantile import Quantile

REPRESENTATIONS: dict[str, Callable[..., Representation]] = {
    "expected": Expected,
    "categorical": Categorical,
    "quantile": Quantile,
    "implicit": Implicit,
    "fully_parameterised": FullyParameterised,
    "particles": Particles,
}
"""Constructors by name; keyword arguments are the fields of the representation."""

__all__ = [
    "REPRESENTATIONS",
    "Categorical",
    "Expected",
    "FullyParameterised",
    "Implicit",
    "Particles",
    "Quantile",
]
