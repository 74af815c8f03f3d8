"""Two speeds beside each other: medians over rounds, and their ratio with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy import stats

from benchmarks.workers import Turn

Unit = Literal["ms", "steps/s"]
RESAMPLES = 4_000


@dataclass(frozen=True)
class Comparison:
    """One line of the table: ``this`` is ``ratio`` times as fast as ``that``."""

    case: str
    this: str
    that: str
    unit: Unit
    this_median: float
    that_median: float
    ratio: float
    low: float
    high: float
    """A 95 % interval of the ratio."""


@dataclass
class Part:
    """What one part of the benchmark found."""

    name: str
    title: str
    comparisons: list[Comparison]
    notes: list[str]
    turns: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Every timed turn, for whoever wants to look closer."""
    facts: dict[str, Any] = field(default_factory=dict)


def compare(case: str, unit: Unit, this: tuple[str, Sequence[Turn]], that: tuple[str, Sequence[Turn]]) -> Comparison:
    """Ratio of median speeds, with the interval of a bootstrap over rounds.

    Rounds are resampled as a whole, this and that together, because what slows one of them slows its neighbour too.
    """
    ours, theirs = (np.array([turn.speed for turn in turns]) for _, turns in (this, that))
    rows = np.random.default_rng(0).integers(len(ours), size=(RESAMPLES, len(ours)))
    ratios = np.median(ours[rows], axis=1) / np.median(theirs[rows], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    speeds = float(np.median(ours)), float(np.median(theirs))
    return _line(case, unit, (this[0], that[0]), speeds, (speeds[0] / speeds[1], float(low), float(high)))


def compare_processes(
    case: str, unit: Unit, this: tuple[str, Sequence[Sequence[Turn]]], that: tuple[str, Sequence[Sequence[Turn]]]
) -> Comparison:
    """The same where each had several processes, this and that side by side in each: the mean over processes.

    Where a process happens to put its memory moves speeds by a few per cent for as long as it lives, so small
    differences are judged by Student's t interval of the processes' ratios (in logarithms), not by rounds within one.
    """
    ours, theirs = (
        np.array([np.median([turn.speed for turn in turns]) for turns in processes]) for _, processes in (this, that)
    )
    logs = np.log(ours / theirs)
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    ratio, low, high = (float(np.exp(logs.mean() + x)) for x in (0.0, -half, half))
    speeds = float(np.median(ours)), float(np.median(theirs))
    return _line(case, unit, (this[0], that[0]), speeds, (ratio, low, high))


def _line(
    case: str, unit: Unit, names: tuple[str, str], speeds: tuple[float, float], ratio: tuple[float, float, float]
) -> Comparison:
    """A line of the table from speeds per second, and the ratio with its interval."""
    shown = [1e3 / speed if unit == "ms" else speed for speed in speeds]
    return Comparison(case, *names, unit, *shown, *ratio)


def raw(turns: Sequence[Turn]) -> list[dict[str, float]]:
    """Turns as data for a file."""
    return [
        {"units": turn.units, "seconds": round(turn.seconds, 6), "cores_busy": round(turn.cores_busy, 2)}
        for turn in turns
    ]


def median_cores(turns: Sequence[Turn]) -> float:
    """How many cores were busy, in the median."""
    return float(np.median([turn.cores_busy for turn in turns]))
