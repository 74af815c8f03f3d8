"""A short version of the simulation in `coverage.py`: which intervals hold what they are about."""

from pathlib import Path

import numpy as np
import pytest
from coverage import LAWS, SEEDS, Row, many_environments, one_environment, page, percentile, student
from scipy import stats

from tremble.report.interval_coverage import (
    MEAN_BIMODAL,
    MEAN_NORMAL,
    SUMMARY_NORMAL,
    about_means,
    about_summaries,
)
from tremble.report.seeds import prediction_interval, tolerance_bound
from tremble.report.statistics import mean_interval
from tremble.report.tables import read_csv


def found(rows):
    return {row.interval: row for row in rows}


@pytest.mark.parametrize("n", [3, 10])
def test_students_interval_covers_for_normal_scores_and_the_bootstrap_does_not(n):
    rows = found(one_environment("normal", n, 4000))
    for name in ("mean, Student's t", "one new run", "95 % of runs reach"):
        assert rows[name].verdict == "covers", name
        assert rows[name].share < 0.97
    assert rows["mean, percentile bootstrap"].verdict == "too narrow"


def test_skewed_scores_of_few_seeds_are_not_covered():
    assert found(one_environment("skewed", 5, 4000))["mean, Student's t"].verdict == "too narrow"


def test_summaries_over_environments_are_too_narrow_with_three_seeds():
    rows = many_environments("normal", 3, 150)
    assert all(0.7 < row.share < 0.95 for row in rows)


def test_the_simulation_has_the_intervals_of_reports():
    scores = np.random.default_rng(0).normal(size=(3, 5))
    for row, low, high in zip(scores, *student(scores), strict=True):
        assert (low, high) == pytest.approx((mean_interval(row).low, mean_interval(row).high))
    low, high = percentile(scores, np.random.default_rng(1), 4000)
    theirs = stats.bootstrap((scores[0],), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(2))
    assert (low[0], high[0]) == pytest.approx(theirs.confidence_interval, abs=0.05)
    mean, spread = scores[0].mean(), scores[0].std(ddof=1)
    half = stats.t.ppf(0.975, 4) * spread * np.sqrt(1 + 1 / 5)
    assert prediction_interval(scores[0]).high == pytest.approx(mean + half)
    assert tolerance_bound(scores[0]) == pytest.approx(mean - 4.2027 * spread, rel=1e-3)  # k of five, 95 % and 95 %


def test_reports_quote_the_simulation():
    file = Path(__file__).parents[1] / "docs" / "results" / "interval-coverage" / "coverage.csv"
    shares = {(r["interval"], r["scores"], int(r["seeds"])): 100 * float(r["share"]) for r in read_csv(file)}
    for quoted, interval, law in (
        (MEAN_NORMAL, "mean, Student's t", "normal"),
        (MEAN_BIMODAL, "mean, Student's t", "bimodal"),
        (SUMMARY_NORMAL, "iqm over 10 environments, stratified bootstrap", "normal"),
    ):
        assert quoted == {n: round(shares[interval, law, n]) for n in SEEDS}
    assert "with 5 seeds" in about_means(9) and "92 %" in about_summaries(5) and "with 3 seeds" in about_summaries(2)


def test_the_page_says_what_is_too_narrow():
    rows = [Row("mean", law, n, 0.8 if n == 3 else 0.95, 1000) for law in LAWS for n in SEEDS]
    assert page(rows).count("80.0 % (too narrow)") == 3
