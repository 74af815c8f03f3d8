"""What a number of seeds can tell: the next run, most runs, the smallest difference that would have been seen.

A confidence interval is about the mean of infinitely many runs. Who trains one agent once wants to know what that run
will score (`prediction_interval`), and what nearly all runs reach (`tolerance_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import optimize, stats

from tremble.report.statistics import Interval

POWER = 0.8
MOST_SEEDS = 100_000
"""Where more seeds than that would be needed, nobody trains them."""


def prediction_interval(values: Any, level: float = 0.95) -> Interval:
    """Where one new run falls with probability ``level``: mean +- t s sqrt(1 + 1/n); of normal scores."""
    values = np.asarray(values, float)
    n = len(values)
    if n < 2:
        return Interval(float(values.mean()) if n else np.nan, -np.inf, np.inf, n)
    half = stats.t.ppf(0.5 + level / 2, n - 1) * values.std(ddof=1) * math.sqrt(1 + 1 / n)
    return Interval(float(values.mean()), float(values.mean() - half), float(values.mean() + half), n)


@cache
def tolerance_factor(n: int, content: float = 0.95, confidence: float = 0.95) -> float:
    """k, such that mean - k s of n normal scores is below a share ``content`` of all runs with this confidence.

    sqrt(n) k is the quantile at ``confidence`` of the noncentral t distribution with n - 1 degrees of freedom and
    noncentrality z sqrt(n), where z is the normal quantile at ``content``.
    """
    root = math.sqrt(n)
    return float(stats.nct.ppf(confidence, n - 1, stats.norm.ppf(content) * root)) / root


def tolerance_bound(values: Any, content: float = 0.95, confidence: float = 0.95) -> float:
    """What a share ``content`` of all runs reach, with this confidence: mean - k s (`tolerance_factor`)."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return -math.inf
    return float(values.mean() - tolerance_factor(len(values), content, confidence) * values.std(ddof=1))


def tolerance_interval(values: Any, content: float = 0.95, confidence: float = 0.95) -> Interval:
    """Where a share ``content`` of all runs lie, with this confidence: mean +- k s, for normal scores.

    k solves P(Phi(Z + k S) - Phi(Z - k S) >= content) = confidence with Z ~ N(0, 1/n), (n - 1) S^2 ~ chi^2(n - 1):
    given Z = z, the condition is S >= r(z) / k, where r solves Phi(z + r) - Phi(z - r) = content.
    """
    values = np.asarray(values, float)
    n = len(values)
    if n < 2:
        return Interval(float(values.mean()) if n else np.nan, -np.inf, np.inf, n)
    half = two_sided_factor(n, content, confidence) * values.std(ddof=1)
    return Interval(float(values.mean()), float(values.mean() - half), float(values.mean() + half), n)


@cache
def two_sided_factor(n: int, content: float = 0.95, confidence: float = 0.95) -> float:
    """The k of `tolerance_interval`; the mean over Z is taken by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    half = np.array([_half_width(abs(z) / math.sqrt(n), content) for z in nodes])

    def covered(k: float) -> float:
        chances = stats.chi2.sf((n - 1) * (half / k) ** 2, n - 1)
        return float(weights @ chances / weights.sum()) - confidence

    return float(optimize.brentq(covered, 0.1, 1e4))


def _half_width(centre: float, content: float) -> float:
    """r with Phi(centre + r) - Phi(centre - r) = content."""
    return float(
        optimize.brentq(lambda r: stats.norm.cdf(centre + r) - stats.norm.cdf(centre - r) - content, 0.0, centre + 10.0)
    )


def runs_for_minimum(content: float = 0.95, confidence: float = 0.95) -> int:
    """Fewest runs whose worst is below a share ``content`` of all runs, whatever their distribution.

    The smallest n with 1 - content^n >= confidence: 59 for 95 % and 95 %.
    """
    return math.ceil(math.log(1 - confidence) / math.log(content))


def runs_for_range(content: float = 0.95, confidence: float = 0.95) -> int:
    """Fewest runs between whose worst and best a share ``content`` of all runs lie, whatever their distribution.

    The smallest n with 1 - n content^(n-1) + (n - 1) content^n >= confidence: 93 for 95 % and 95 %.
    """
    n = 2
    while 1 - n * content ** (n - 1) + (n - 1) * content**n < confidence:
        n += 1
    return n


def power(difference: float, spread: float, n: int, level: float = 0.95) -> float:
    """Chance that the paired t interval of n seeds excludes 0, where differences are N(difference, spread^2).

    P(|T| > t) with T noncentral t: n - 1 degrees of freedom, noncentrality sqrt(n) difference / spread.
    """
    if n < 2:
        return 0.0
    border, away = stats.t.ppf(0.5 + level / 2, n - 1), math.sqrt(n) * abs(difference) / spread
    if away - border > 10:  # certain, and out of the range of the noncentral t distribution
        return 1.0
    upper = float(stats.nct.sf(border, n - 1, away))
    lower = float(stats.nct.cdf(-border, n - 1, away))  # underflows to NaN far away, where it is 0
    return upper + (lower if math.isfinite(lower) else 0.0)


def minimal_difference(spread: float, n: int, chance: float = POWER, level: float = 0.95) -> float:
    """The difference that n pairs of runs show with a chance of 80 %, where differences spread like this."""
    if n < 2:
        return math.inf
    return spread * _in_spreads(n, chance, level)


@cache
def _in_spreads(n: int, chance: float, level: float) -> float:
    """The same in units of the spread."""
    high = 1.0
    while power(high, 1.0, n, level) < chance:
        high *= 2
    return float(optimize.brentq(lambda d: power(d, 1.0, n, level) - chance, 0.0, high, xtol=1e-10))


def seeds_needed(difference: float, spread: float, chance: float = POWER, level: float = 0.95) -> int | None:
    """Fewest seeds that show a difference with a chance of 80 %; None if that is more than `MOST_SEEDS`."""
    if spread == 0 or difference == 0:
        return 2 if difference else None
    low, high = 1, 2
    while power(difference, spread, high, level) < chance:
        if high == MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(difference, spread, middle, level) >= chance else (middle, high)
    return high


def paired_p_value(differences: Any) -> float:
    """p-value of the two-sided paired t test; NaN for a single pair."""
    values = np.asarray(differences, float)
    if len(values) < 2:
        return math.nan
    error = values.std(ddof=1) / math.sqrt(len(values))
    if error == 0:
        return float(values[0] == 0)
    return float(2 * stats.t.sf(abs(values.mean()) / error, len(values) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm, 1979): the k-th smallest of m is multiplied by m - k + 1.

    Adjusted values are monotone and at most 1. NaN, a test that was not made, stays and is not counted.
    """
    made = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, largest = list(p_values), 0.0
    for rank, i in enumerate(sorted(made, key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(made) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted
