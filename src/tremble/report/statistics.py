"""Intervals and verdicts.

Differences between agents are judged by Welch's t interval: with 4 to 30 seeds a bootstrap interval of the mean is too
narrow, and the two agents' spreads differ widely.
"""

from __future__ import annotations

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

    def excludes(self, value: float) -> bool:
        """Whether a value lies outside."""
        return not self.low <= value <= self.high

    def text(self, digits: int = 0) -> str:
        """For a table: estimate [low, high]."""
        if not np.isfinite(self.low):
            return f"{self.estimate:,.{digits}f} (one seed)"
        return f"{self.estimate:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def mean_interval(values: Any, level: float = 0.95) -> Interval:
    """Mean with Student's t interval."""
    values = np.asarray(values, float)
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Interval(mean, -np.inf, np.inf, n)
    half = float(stats.t.ppf(0.5 + level / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half, n)


def difference_interval(first: Any, second: Any, level: float = 0.95) -> Interval:
    """mean(first) - mean(second) with Welch's t interval."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    estimate, n = float(first.mean() - second.mean()), min(len(first), len(second))
    if n < 2:
        return Interval(estimate, -np.inf, np.inf, n)
    parts = [float(x.var(ddof=1)) / len(x) for x in (first, second)]
    total = sum(parts)
    if total == 0:
        return Interval(estimate, estimate, estimate, n)
    freedom = total**2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (first, second), strict=True))
    half = float(stats.t.ppf(0.5 + level / 2, freedom) * np.sqrt(total))
    return Interval(estimate, estimate - half, estimate + half, n)


def slope_interval(x: Any, y: Any, level: float = 0.95) -> Interval:
    """Least-squares slope of y on x with its t interval."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    fit = stats.linregress(x, y)
    half = float(stats.t.ppf(0.5 + level / 2, len(x) - 2) * fit.stderr)
    return Interval(float(fit.slope), float(fit.slope) - half, float(fit.slope) + half, len(x))


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
