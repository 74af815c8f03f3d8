"""What a search tries: the settings of each trial, by its number.

Trials of a grid and of a random search follow from the sweep alone. Those of Optuna are asked for one after the other
and kept in a journal (`tremble.sweeps.optuna_journal`), from which every worker reads the same trials.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tremble.sweep_records import Cell
from tremble.sweeps.sweep import Search


def fitting_space(search: Search, known: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the space whose settings an agent has."""
    return {
        name: domain
        for name, domain in search.space.items()
        if name in known or any(path.endswith(f".{name}") for path in known)
    }


def fixed_trials(search: Search, space: Mapping[str, Any], cell: Cell) -> list[dict[str, Any]]:
    """The settings of all trials of a grid or a random search, in order."""
    if search.method == "grid":
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    drawn = (drawn_settings(space, (search.seed, zlib.crc32(cell.label.encode()), k)) for k in range(search.trials))
    return list(drawn)


def drawn_settings(space: Mapping[str, Any], entropy: tuple[int, ...]) -> dict[str, Any]:
    """One independent draw: uniform over a list; uniform over a range, or over its logarithms."""
    generator = np.random.default_rng(entropy)
    return {name: _drawn(generator, domain) for name, domain in space.items()}


def _drawn(generator: np.random.Generator, domain: Any) -> Any:
    if not isinstance(domain, Mapping):
        return domain[int(generator.integers(len(domain)))]
    low, high, whole = domain["low"], domain["high"], bool(domain.get("whole"))
    ends = (low, high + 1) if whole else (low, high)  # every whole number has the unit above it
    if domain.get("log"):
        value = math.exp(generator.uniform(math.log(ends[0]), math.log(ends[1])))
    else:
        value = generator.uniform(*ends)
    return min(int(value), high) if whole else float(value)
