"""Axis B: from a return distribution to one score per action.

Criteria have names here: the library's own, those of installed packages, and ``module:Class``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tremble.criteria.base import Criterion, Mean, RiskMeasure
from tremble.criteria.distortion import CPW, CustomDistortion, CVaR, Distortion, Norm, Power, VaR, Wang
from tremble.criteria.heads import MajorityVote, RandomAtom
from tremble.criteria.optimism import Optimism
from tremble.criteria.perturbed import Perturbed, perturbation, sample_dirichlet, sample_perturbation
from tremble.criteria.robust import WorstCase
from tremble.criteria.utility import MeanVariance, Utility
from tremble.settings import SettingsError, import_named, nearest, override, reference

CRITERIA: dict[str, Callable[..., Criterion]] = {
    "mean": Mean,
    "dltv": partial(Optimism, draw_law="one"),
    "p_dltv": partial(Optimism, draw_law="normal"),
    "pqr": Perturbed,
    "cvar": CVaR,
    "wang": Wang,
    "cpw": CPW,
    "power": Power,
    "norm": Norm,
    "var": VaR,
    "distortion": CustomDistortion,
    "mean_variance": MeanVariance,
    "utility": Utility,
    "worst_case": WorstCase,
    "random_atom": RandomAtom,
    "majority_vote": MajorityVote,
}
"""Constructors by name; keyword arguments are the fields of the criterion."""
GROUP = "tremble.criteria"
"""Installed packages add names by entry points of this group."""


def installed_criteria() -> dict[str, EntryPoint]:
    """What installed packages add, not yet imported. A name of the library's own stays the library's."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in CRITERIA}


def criterion_names() -> dict[str, str]:
    """Every name, with what it stands for in one line."""
    own = {name: _line_about(build) for name, build in CRITERIA.items()}
    return own | {name: f"of an installed package: {point.value}" for name, point in installed_criteria().items()}


def _line_about(build: Callable[..., Criterion]) -> str:
    """The first line of its docstring, and the settings by which a name differs from another of the same class."""
    if isinstance(build, partial):
        settings = ", ".join(f"{name}={value}" for name, value in build.keywords.items())
        return f"{_line_about(build.func)} ({settings})"
    return (build.__doc__ or "").partition("\n")[0]


def find_criterion(name: str) -> Callable[..., Criterion]:
    """The constructor behind a name, or behind ``module:Class``."""
    if name in CRITERIA:
        return CRITERIA[name]
    if ":" in name:
        found = import_named(name)
        # Looked at before it is called: a name in somebody's file may be that of any function.
        if not (isinstance(found, type) and issubclass(found, Criterion)):
            raise SettingsError(f"{name} is no criterion: it must be a subclass of tremble.criteria.Criterion")
        return found
    installed = installed_criteria()
    if name not in installed:
        raise SettingsError(f"there is no criterion {name!r}; {nearest(name, [*CRITERIA, *installed])}")
    try:
        return installed[name].load()
    except Exception as error:  # whatever the other package does wrong
        raise SettingsError(
            f"the criterion {name!r} of an installed package ({installed[name].value}) cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error


def make_criterion(criterion: str | Callable[..., Criterion] | Criterion, **settings: Any) -> Criterion:
    """A criterion from its name, from its class, or from one that is there, with some settings changed."""
    made: Any = find_criterion(criterion) if isinstance(criterion, str) else criterion
    if callable(made) and not isinstance(made, Criterion):
        try:
            made = made()
        except TypeError as error:
            raise SettingsError(f"{criterion} cannot be made: all its settings need a default ({error})") from error
    if not isinstance(made, Criterion):
        raise SettingsError(
            f"{reference(made)} is no criterion: it must be an instance of a subclass of tremble.criteria.Criterion"
        )
    return override(made, settings)


__all__ = [
    "CRITERIA",
    "criterion_names",
    "make_criterion",
    "Criterion",
    "RiskMeasure",
    "Mean",
    "Optimism",
    "Perturbed",
    "Distortion",
    "CVaR",
    "VaR",
    "Wang",
    "CPW",
    "Power",
    "Norm",
    "CustomDistortion",
    "MeanVariance",
    "Utility",
    "WorstCase",
    "RandomAtom",
    "MajorityVote",
    "perturbation",
    "sample_dirichlet",
    "sample_perturbation",
]
