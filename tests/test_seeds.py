"""Next runs, most runs, power: against SciPy, published tables and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from tremble.report.seeds import (
    holm,
    minimal_difference,
    paired_p_value,
    power,
    prediction_interval,
    runs_for_minimum,
    runs_for_range,
    seeds_needed,
    tolerance_bound,
    tolerance_factor,
    tolerance_interval,
    two_sided_factor,
)

REPEATS = 4000


def within(share, expected, repeats=REPEATS):
    return abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / repeats)


def test_a_prediction_interval_holds_the_next_run_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = rng.normal(3.0, 2.0, (REPEATS, 6))
    found = [prediction_interval(row[:5]) for row in draws]
    assert within(np.mean([i.low <= row[5] <= i.high for i, row in zip(found, draws, strict=True)]), 0.95)


def test_a_prediction_interval_by_hand():
    # Two scores 0 and 2: mean 1, s = sqrt(2), sqrt(1 + 1/2); t(0.975, 1) = 12.7062.
    half = 12.7062 * math.sqrt(2) * math.sqrt(1.5)
    assert prediction_interval([0.0, 2.0]).high == pytest.approx(1 + half, rel=1e-4)
    assert prediction_interval([4.0]).low == -math.inf


def test_factors_are_those_of_the_tables():
    # NIST/SEMATECH handbook 7.2.6.3: one-sided k of 43 values, 90 % with 99 % confidence, by the noncentral t: 1.8740.
    assert tolerance_factor(43, 0.90, 0.99) == pytest.approx(1.8740, abs=1e-4)
    # ISO 16269-6, 95 % / 95 %: one-sided n = 10: 2.911; two-sided, unknown mean and spread, n = 10: 3.3935.
    assert tolerance_factor(10) == pytest.approx(2.911, abs=1e-3)
    assert two_sided_factor(10) == pytest.approx(3.3935, abs=2e-3)


@pytest.mark.parametrize("n", [3, 10])
def test_tolerance_holds_most_runs_with_its_confidence(n):
    draws = np.random.default_rng(1).normal(size=(1000, n))
    reach = [stats.norm.sf(tolerance_bound(row)) >= 0.95 for row in draws]
    ends = [tolerance_interval(row) for row in draws]
    between = [stats.norm.cdf(i.high) - stats.norm.cdf(i.low) >= 0.95 for i in ends]
    assert within(np.mean(reach), 0.95, 1000) and within(np.mean(between), 0.95, 1000)


def test_without_a_distribution_runs_are_counted():
    # 0.95^59 = 0.0485 < 0.05 <= 0.95^58 = 0.0510.
    assert runs_for_minimum() == 59 and 0.95**59 < 0.05 <= 0.95**58
    # Between minimum and maximum: the share that lies there has the Beta(n - 1, 2) distribution.
    n = runs_for_range()
    assert stats.beta.sf(0.95, n - 1, 2) >= 0.95 > stats.beta.sf(0.95, n - 2, 2) and n == 93


@pytest.mark.parametrize("difference, n", [(1.0, 5), (0.5, 20), (3.0, 3)])
def test_power_is_how_often_a_difference_is_seen(difference, n):
    draws = np.random.default_rng(2).normal(difference, 1.0, (REPEATS, n))
    seen = stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05
    assert within(seen.mean(), power(difference, 1.0, n))


def test_the_smallest_difference_has_the_power_asked_for():
    for n in (2, 3, 5, 10, 30):
        assert power(minimal_difference(2.5, n), 2.5, n) == pytest.approx(0.8, abs=1e-6)
    assert minimal_difference(1.0, 1) == math.inf and minimal_difference(0.0, 5) == 0.0
    assert power(9.0, 1.0, 5000) == 1.0


def test_seeds_needed_are_the_fewest():
    for difference in (0.2, 1.0, 4.0):
        n = seeds_needed(difference, 1.0)
        assert power(difference, 1.0, n) >= 0.8 and (n == 2 or power(difference, 1.0, n - 1) < 0.8)
    # Of a normal test (z_0.975 + z_0.8)^2 / d^2 = 7.849 / 0.01 = 785 seeds, and two for Student's t.
    assert seeds_needed(0.1, 1.0) == 787
    assert seeds_needed(1e-6, 1.0) is None and seeds_needed(0.0, 0.0) is None and seeds_needed(1.0, 0.0) == 2


def test_p_values_are_scipys():
    first, second = np.random.default_rng(3).normal(size=(2, 7))
    assert paired_p_value(first - second) == pytest.approx(stats.ttest_rel(first, second).pvalue)
    assert paired_p_value([0.0, 0.0]) == 1.0 and paired_p_value([2.0, 2.0]) == 0.0
    assert math.isnan(paired_p_value([1.0]))


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.4 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.4; the third may not be below the second.
    assert holm([0.03, 0.01, 0.4, 0.02]) == pytest.approx([0.06, 0.04, 0.4, 0.06])
    # A test that could not be made takes no share.
    assert holm([0.02, math.nan, 0.9])[::2] == pytest.approx([0.04, 0.9])


def test_holm_rarely_finds_what_is_not_there():
    draws = np.random.default_rng(4).uniform(size=(2000, 8))
    wrong = [min(holm(row.tolist())) < 0.05 for row in draws]
    assert np.mean(wrong) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)
