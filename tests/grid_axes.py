"""Axes of the agents' grid, and sets of points that cover every pair of values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tremble
from tremble.representations import REPRESENTATIONS

Point = dict[str, Any]
"""A value for every axis."""

APART = {"bootstrapped", "random_atom", "majority_vote", "options"}
"""Tested in `test_explorers.py`. An ensemble's atoms are opinions, not returns, and its criteria follow one of them.
Options act by their part of the quantiles, whatever the criterion."""

AXES: dict[str, Sequence[Any]] = {
    "representation": (*(name for name in REPRESENTATIONS if name not in APART), "quantile monotone"),
    "criterion": tuple(name for name in tremble.list_criteria() if name not in APART),
    "criterion_for": ("both", "behaviour", "target"),
    "double": (False, True),
    "dueling": (False, True),
    "noisy": (False, True),
    "prioritised": (False, True),
    "n_step": (1, 3),
}
"""What can be combined. New representations and criteria join by being registered."""

PROGRAM = ("representation", "double", "dueling", "noisy")
"""Axes that change the compiled program of an update. The others change its data: which criterion selects, and what
the memory hands out."""


def name_of(point: Mapping[str, Any]) -> str:
    """A point in words: ``quantile, cvar, behaviour, double, n_step 3``."""
    words = [str(point[axis]) for axis in ("representation", "criterion", "criterion_for") if axis in point]
    words += [axis for axis in ("double", "dueling", "noisy", "prioritised") if point.get(axis)]
    return ", ".join(words + ([f"n_step {point['n_step']}"] if point.get("n_step", 1) > 1 else []))


def product(axes: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def pairs(axes: Mapping[str, Sequence[Any]]) -> list[tuple[str, Any, str, Any]]:
    """Every pair of values of two different axes."""
    return [
        (one, x, two, y)
        for one, two in itertools.combinations(axes, 2)
        for x, y in itertools.product(axes[one], axes[two])
    ]


def covering(
    axes: Mapping[str, Sequence[Any]],
    candidates: Sequence[Point] | None = None,
    cost: Callable[[Point], float] = lambda point: 1.0,
) -> list[Point]:
    """Points, from the candidates or from anywhere, in which every pair of values occurs.

    Greedy: always the candidate that has most pairs not yet covered for its cost, the first of several.
    """
    candidates = product(axes) if candidates is None else candidates
    wanted = pairs(axes)
    has = np.array([[point[a] == x and point[b] == y for a, x, b, y in wanted] for point in candidates])
    costs = np.array([cost(point) for point in candidates])
    chosen, open_pairs = [], np.ones(len(wanted), bool)
    while open_pairs.any():
        gains = has[:, open_pairs].sum(1) / costs
        best = int(gains.argmax())
        if gains[best] == 0:
            raise ValueError(f"no candidate has {wanted[int(open_pairs.argmax())]}")
        chosen.append(candidates[best])
        open_pairs &= ~has[best]
    return chosen


def some() -> list[Point]:
    """A set that covers every pair with few different programs: what every test run can afford."""
    programs = covering({axis: AXES[axis] for axis in PROGRAM})
    rest = product({axis: values for axis, values in AXES.items() if axis not in PROGRAM})
    candidates = [program | other for program in programs for other in rest]
    return covering(AXES, candidates, lambda point: 3.0 if point["noisy"] else 1.0)


def all_points() -> list[Point]:
    """Every representation with every criterion, and for each of those every pair of the other axes' values."""
    first = ("representation", "criterion")
    rest = covering({axis: values for axis, values in AXES.items() if axis not in first})
    return [point | other for point in product({axis: AXES[axis] for axis in first}) for other in rest]
