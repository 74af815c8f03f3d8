"""Axis A: how the return is predicted, and what divergence trains it."""

from __future__ import annotations

from collections.abc import Callable

from tremble.core import Representation
from tremble.representations.expected import Expected
from tremble.representations.quantile import Quantile

REPRESENTATIONS: dict[str, Callable[..., Representation]] = {"expected": Expected, "quantile": Quantile}
"""Constructors by name; keyword arguments are the fields of the representation."""

__all__ = ["REPRESENTATIONS", "Expected", "Quantile"]
