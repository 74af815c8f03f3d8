"""Intervals against simulation and scipy; verdicts by their definition."""

import numpy as np
import pytest
from scipy import stats

from tremble.report.statistics import (
    Interval,
    density,
    difference_interval,
    direction,
    mean_band,
    mean_interval,
    verdict,
)
from tremble.report.tables import number


def test_mean_interval_is_students():
    values = [3.0, 5.0, 4.5, 6.0]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    ours = mean_interval(values)
    np.testing.assert_allclose([ours.low, ours.high], [low, high])
    assert ours.n == 4 and ours.half_width == pytest.approx((high - low) / 2)


def test_mean_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [mean_interval(rng.normal(7.0, 2.0, 5)) for _ in range(4000)]
    hits = [found.low <= 7.0 <= found.high for found in intervals]
    assert abs(np.mean(hits) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000)


def test_one_seed_has_no_interval():
    ours = mean_interval([4.0])
    assert (ours.low, ours.high) == (-np.inf, np.inf) and "one seed" in ours.text()


def test_an_interval_does_not_reach_beyond_what_is_possible():
    values = [0.0, 100.0, 20.0]
    free, cut = mean_interval(values), mean_interval(values, between=(0, 120))
    assert free.low < 0 and free.high > 120
    assert (cut.low, cut.high, cut.estimate) == (0, 120, 40)
    assert cut.errors == (40, 80) and mean_interval([4.0]).errors == (0.0, 0.0)


def test_differences_are_taken_seed_by_seed():
    first = {0: 10.0, 1: 110.0, 2: 1010.0, 7: 5.0}
    second = {0: 9.0, 1: 108.0, 2: 1009.0, 8: 0.0}
    ours = difference_interval(first, second)
    assert ours.estimate == pytest.approx(4 / 3) and ours.n == 3
    expected = mean_interval([1.0, 2.0, 1.0])
    assert (ours.low, ours.high) == (expected.low, expected.high)


@pytest.mark.parametrize(
    "published, low, high, expected",
    [
        (100, 20, 60, "reproduced"),
        (-100, -60, -20, "reproduced"),
        (100, -60, -20, "not reproduced"),  # the other sign
        (100, -50, 70, "not reproduced"),  # contains 0, and would have seen 100
        (100, -150, 250, "inconclusive"),  # contains 0, too wide to see 100
        (100, 0, 80, "not reproduced"),  # 0 on the border is contained
    ],
)
def test_verdicts(published, low, high, expected):
    assert verdict(Interval((low + high) / 2, low, high, 10), published, quick=False) == expected


@pytest.mark.parametrize(
    "low, high, expected",
    [(20, 60, "reproduced"), (-60, -20, "not reproduced"), (-50, 70, "inconclusive"), (0, 80, "inconclusive")],
)
def test_verdicts_on_a_claim_without_a_number(low, high, expected):
    """That the first is better is refuted by the other sign alone: an advantage of any size fits an interval with 0."""
    assert verdict(Interval((low + high) / 2, low, high, 10), quick=False) == expected


def test_density_integrates_to_one():
    grid = np.linspace(-10, 10, 4001)
    values = density(np.random.default_rng(0).normal(size=200), grid)
    assert np.trapezoid(values, grid) == pytest.approx(1.0, abs=1e-3)
    constant = density(np.full(50, 2.0), grid, 0.05)
    assert np.isfinite(constant).all() and grid[np.argmax(constant)] == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("low, high, expected", [(20, 60, "above"), (-60, -20, "below"), (-50, 70, "undecided")])
def test_directions(low, high, expected):
    assert direction(Interval((low + high) / 2, low, high, 10), quick=False) == expected


def test_a_band_has_the_interval_of_each_point():
    values = np.random.default_rng(0).normal(size=(5, 7))
    for mean, low, high, column in zip(*mean_band(values), values.T, strict=True):
        interval = mean_interval(column)
        assert (mean, low, high) == pytest.approx((interval.estimate, interval.low, interval.high))
    mean, low, high = mean_band(values[:1])
    assert mean.tolist() == values[0].tolist() and not np.isfinite([low, high]).any()


def test_no_number_is_shown_as_nan():
    """Before the first value, and where one diverged."""
    none = mean_interval([])
    assert (none.n, none.text()) == (0, "none yet") and verdict(none, quick=False) == "inconclusive"
    assert difference_interval({0: 1.0}, {1: 1.0}).text() == "none yet"
    assert mean_interval([1.0, float("nan")]).text(2) == "not finite"
    assert [number(x, 1) for x in (1234.56, float("nan"), float("inf"))] == ["1,234.6", "not finite", "not finite"]
