"""Axis A: how the return is predicted, and what divergence trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tremble.representations.base import DETERMINISTIC, ActContext, OutputRepresentation, Query, Representation
from tremble.representations.bootstrapped import Bootstrapped
from tremble.representations.categorical import Categorical
from tremble.representations.expected import Expected
from tremble.representations.fully_parameterised import FullyParameterised
from tremble.representations.implicit import Implicit
from tremble.representations.non_decreasing import NonDecreasing
from tremble.representations.options import QuantileOptions
from tremble.representations.particles import Particles
from tremble.representations.quantile import Quantile
from tremble.settings import SettingsError, import_named, nearest, reference

REPRESENTATIONS: dict[str, Callable[..., Representation]] = {
    "expected": Expected,
    "categorical": Categorical,
    "quantile": Quantile,
    "implicit": Implicit,
    "fully_parameterised": FullyParameterised,
    "particles": Particles,
    "bootstrapped": Bootstrapped,
    "non_decreasing": NonDecreasing,
    "options": QuantileOptions,
}
"""Constructors by name; keyword arguments are the fields of the representation."""


def make_representation(representation: str | Callable[..., Representation] | Representation) -> Representation:
    """A representation from its name, from ``module:Class``, from its class, or one that is there."""
    made: Any = representation
    if isinstance(made, str):
        if ":" not in made and made not in REPRESENTATIONS:
            raise SettingsError(f"there is no representation {made!r}; {nearest(made, REPRESENTATIONS)}")
        made = import_named(made) if ":" in made else REPRESENTATIONS[made]
    if isinstance(made, type) and issubclass(made, Representation):
        made = made()
    if not isinstance(made, Representation):
        raise SettingsError(
            f"{reference(made)} is no representation: it must be a subclass of tremble.representations.Representation"
        )
    return made


__all__ = [
    "DETERMINISTIC",
    "REPRESENTATIONS",
    "ActContext",
    "Bootstrapped",
    "Categorical",
    "Expected",
    "FullyParameterised",
    "Implicit",
    "NonDecreasing",
    "OutputRepresentation",
    "Particles",
    "Quantile",
    "QuantileOptions",
    "Query",
    "Representation",
    "make_representation",
]
