"""Intervals and verdicts.

Runs of one seed share their initial parameters, their random start steps and their reward noise, whatever the agent.
Differences between agents are therefore paired by seed, with Student's t interval of the paired differences: with 4 to
30 seeds a bootstrap interval of a mean is too narrow, and pairing removes the variance between seeds that agents share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy import special  # not stats, which takes as long to import as JAX: `sweep status` is to be quick

Verdict = Literal["reproduced", "not reproduced", "inconclusive", "no verdict"]
SUPPORT: Mapping[Verdict, str] = {
    "reproduced": "supported",
    "not reproduced": "contradicted",
    "inconclusive": "inconclusive",
    "no verdict": "no verdict",
}
"""Words for a claim that was made under other conditions (other games, another length): nothing is reproduced then."""


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
        """Lengths of the error bar below and above the estimate; 0 for a single seed, which has no interval."""
        if not np.isfinite(self.low):
            return 0.0, 0.0
        return self.estimate - self.low, self.high - self.estimate

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval is above or below 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)

    def text(self, digits: int = 0) -> str:
        """For a table: estimate [low, high]."""
        if self.n == 0:
            return "none yet"
        if not np.isfinite(self.estimate):
            return "not finite"
        if not np.isfinite(self.low):
            return f"{self.estimate:,.{digits}f} (one seed)"
        return f"{self.estimate:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


Direction = Literal["above", "below", "undecided", "no verdict"]


NOT_NEGATIVE = (0.0, np.inf)
"""Possible values of distances, deviations and the scores of some games."""


def mean_interval(values: Any, level: float = 0.95, between: tuple[float, float] = (-np.inf, np.inf)) -> Interval:
    """Mean with Student's t interval, clipped to the possible values ``between`` (a count: 0 to the steps)."""
    values = np.asarray(values, float)
    if len(values) == 0:
        return Interval(np.nan, -np.inf, np.inf, 0)
    (mean,), (low,), (high,) = mean_band(values[:, None], level)
    if len(values) < 2:
        return Interval(float(mean), -np.inf, np.inf, len(values))
    return Interval(float(mean), max(float(low), between[0]), min(float(high), between[1]), len(values))


def mean_band(
    values: Float[np.ndarray, "n points"], level: float = 0.95
) -> tuple[Float[np.ndarray, "points"], Float[np.ndarray, "points"], Float[np.ndarray, "points"]]:
    """Mean of n values at each point, and the ends of Student's t interval, which is infinite where n is 1."""
    n, mean = len(values), values.mean(0)
    if n < 2:
        return mean, np.full_like(mean, -np.inf), np.full_like(mean, np.inf)
    half = special.stdtrit(n - 1, 0.5 + level / 2) * values.std(0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def difference_interval(first: Mapping[Any, float], second: Mapping[Any, float]) -> Interval:
    """Mean of first - second over the keys (seeds) in both, with Student's t interval."""
    return mean_interval([first[key] - second[key] for key in first if key in second])


def verdict(measured: Interval, published: float | None = None, *, quick: bool) -> Verdict:
    """Whether a published difference is found again; None stands for a claim without a number, that it is positive.

    A ``quick`` version of a study is too short to judge by: *no verdict*, whatever was measured.

    *Reproduced*: the same sign, and the interval of the difference excludes 0. *Inconclusive*: the interval contains 0
    and cannot rule out the claim, because its half-width exceeds the published difference or no size was published.
    *Not reproduced*: the rest.
    """
    if quick:
        return "no verdict"
    if measured.sign:
        same_sign = measured.sign * (1.0 if published is None else published) > 0
        return "reproduced" if same_sign else "not reproduced"
    undecided = published is None or measured.half_width > abs(published)
    return "inconclusive" if undecided else "not reproduced"


def direction(measured: Interval, *, quick: bool) -> Direction:
    """Whether the interval of a difference or a slope lies above 0 or below; *no verdict* where `verdict` has none."""
    if quick:
        return "no verdict"
    return "above" if measured.sign > 0 else "below" if measured.sign < 0 else "undecided"


def density(samples: Any, at: Any, minimum_width: float = 1e-2) -> np.ndarray:
    """Gaussian kernel density (Scott's rule) at given points; the minimum width is for near-constant samples."""
    samples = np.asarray(samples, float)
    width = max(float(np.std(samples, ddof=1)) * len(samples) ** -0.2, minimum_width)
    away = (np.asarray(at)[:, None] - samples[None, :]) / width
    return np.asarray(np.exp(-(away**2) / 2).mean(1) / (width * np.sqrt(2 * np.pi)))
