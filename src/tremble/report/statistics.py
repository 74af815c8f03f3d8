"""Intervals and verdicts.

Runs of one seed share their initial parameters, their random start steps and their reward noise, whatever the agent.
Differences between agents are therefore taken seed by seed, and judged by Student's t interval of those differences:
with 4 to 30 seeds a bootstrap interval of a mean is too narrow, and without pairing the spread between seeds, which the
agents have in common, would drown the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]


@dataclass(frozen=True)
class Interval:
    """An estimate with a two-sided confidence interval."""

    estimate: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2

    @property
    def errors(self) -> tuple[float, float]:
        """How far it reaches below and above the estimate, for error bars; nothing, where one seed has no interval."""
        if not np.isfinite(self.low):
            return 0.0, 0.0
        return self.estimate - self.low, self.high - self.estimate

    def excludes(self, value: float) -> bool:
        """Whether a value lies outside."""
        return not self.low <= value <= self.high

    def text(self, digits: int = 0) -> str:
        """For a table: estimate [low, high]."""
        if not np.isfinite(self.low):
            return f"{self.estimate:,.{digits}f} (one seed)"
        return f"{self.estimate:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


NOT_NEGATIVE = (0.0, np.inf)
"""What distances, deviations and the scores of some games can be."""


def mean_interval(values: Any, level: float = 0.95, between: tuple[float, float] = (-np.inf, np.inf)) -> Interval:
    """Mean with Student's t interval, cut to the values that are possible: a count lies between 0 and the steps."""
    values = np.asarray(values, float)
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, -np.inf, np.inf, n)
    half = float(stats.t.ppf(0.5 + level / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Interval(mean, max(mean - half, between[0]), min(mean + half, between[1]), n)


def difference_interval(first: Mapping[Any, float], second: Mapping[Any, float], level: float = 0.95) -> Interval:
    """Mean of first - second over the keys (seeds) both have, with Student's t interval."""
    common = [key for key in first if key in second]
    return mean_interval([first[key] - second[key] for key in common], level)


def verdict(published: float, measured: Interval) -> Verdict:
    """Whether a published difference is found again.

    *Reproduced*: the same sign, and the interval of the difference excludes 0. *Inconclusive*: the interval contains 0,
    but is so wide that its half-width exceeds the published difference. *Not reproduced*: the rest.
    """
    if measured.excludes(0.0):
        return "reproduced" if measured.estimate * published > 0 else "not reproduced"
    return "inconclusive" if measured.half_width > abs(published) else "not reproduced"


def density(samples: Any, at: Any, minimum_width: float = 1e-2) -> np.ndarray:
    """Gaussian kernel density (Scott's rule) at given points; a minimum width keeps near-constant samples drawable."""
    samples = np.asarray(samples, float)
    width = max(float(np.std(samples, ddof=1)) * len(samples) ** -0.2, minimum_width)
    return np.asarray(stats.norm.pdf(np.asarray(at)[:, None], samples[None, :], width).mean(1))
