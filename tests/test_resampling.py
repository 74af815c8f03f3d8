"""Summaries over environments with unequal numbers of runs, profiles, probability of improvement; against rliable."""

import sys
import types

import numpy as np
import pytest
from scipy import stats

from tremble.report import scores as matrices
from tremble.report.improvement import improvement_interval, improvements, probability_of_improvement
from tremble.report.resampling import aggregate, drawn_weights, min_max, profile, run_weights, summaries


def equal(runs=5, environments=6, seed=0):
    return np.random.default_rng(seed).gamma(2.0, 1.0, size=(runs, environments))


@pytest.mark.parametrize("runs, environments", [(1, 3), (2, 2), (3, 7), (5, 6), (10, 1)])
def test_equal_numbers_of_runs_give_the_summaries_of_a_matrix_and_rliables(runs, environments):
    metrics = pytest.importorskip("rliable.metrics")
    table = equal(runs, environments)
    ours = summaries(list(table.T), run_weights([runs] * environments)[None])
    theirs = {
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "iqm": metrics.aggregate_iqm,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    for name, function in theirs.items():
        assert ours[name][0] == pytest.approx(function(table))
        assert ours[name][0] == pytest.approx(matrices.AGGREGATES[name](table))


def test_unequal_numbers_by_hand():
    # Two environments count the same: means 2 and 10, with three runs and one.
    lists = [np.array([1.0, 2.0, 3.0]), np.array([10.0])]
    found = {name: value[0] for name, value in summaries(lists, run_weights([3, 1])[None]).items()}
    assert found["mean"] == pytest.approx(6.0) and found["median"] == pytest.approx(6.0)
    # Four runs weigh 2/3, 2/3, 2/3 and 2; one is cut at either end: 2/3 of 1 and 1/3 of 2 below, half of 10 above.
    # What is kept: 1/3 of 2, 2/3 of 3, 1 of 10, together 2.
    assert found["iqm"] == pytest.approx((2 / 3 + 2 + 10) / 2)
    # Shortfall from 1: no run is below 1.
    assert found["optimality_gap"] == pytest.approx(0.0)


def test_replicates_are_draws_of_runs_within_environments():
    counts = [3, 5]
    weights = drawn_weights(counts, np.random.default_rng(0), 50)
    np.testing.assert_allclose([weights[:, :3].sum(1), weights[:, 3:].sum(1)], 0.5)
    drawn = np.round(weights[0] * 2 * np.repeat(counts, counts)).astype(int)
    lists = [np.array([1.0, 5.0, 2.0]), np.array([0.0, 3.0, 8.0, 1.0, 4.0])]
    again = [np.repeat(lists[0], drawn[:3]), np.repeat(lists[1], drawn[3:])]
    ours = summaries(lists, weights[:1])
    theirs = summaries(again, run_weights(counts)[None])
    for name, value in theirs.items():
        assert ours[name][0] == pytest.approx(value[0]), name


def test_intervals_are_those_of_scipys_bootstrap():
    """SciPy draws within each of several samples, which may differ in size; by other code and other draws."""
    rng = np.random.default_rng(2)
    lists = [rng.gamma(2.0, 0.4, n) for n in (6, 9, 7)]
    ours = aggregate(lists, reps=3000)
    for name, interval in ours.items():

        def summary(*drawn, name=name):
            return summaries(list(drawn), run_weights([len(one) for one in drawn])[None])[name][0]

        theirs = stats.bootstrap(
            tuple(lists),
            summary,
            n_resamples=1000,
            vectorized=False,
            method="percentile",
            rng=np.random.default_rng(3),
        ).confidence_interval
        np.testing.assert_allclose(
            [interval.low, interval.high], [theirs.low, theirs.high], atol=0.12 * (theirs.high - theirs.low)
        )


def test_one_run_of_an_environment_has_no_interval():
    found = aggregate([np.array([1.0, 2.0]), np.array([3.0])])
    assert all(not np.isfinite(interval.low) and interval.n == 1 for interval in found.values())
    assert np.isnan(profile([np.array([1.0])], np.array([0.0])).low).all()


@pytest.fixture
def library(monkeypatch):
    """rliable's functions; it imports `arch` for its own bootstrap, which does not work with pandas 3."""
    arch, bootstrap = types.ModuleType("arch"), types.ModuleType("arch.bootstrap")
    bootstrap.IIDBootstrap = bootstrap.IndependentSamplesBootstrap = object
    arch.bootstrap = bootstrap
    monkeypatch.setitem(sys.modules, "arch", arch)
    monkeypatch.setitem(sys.modules, "arch.bootstrap", bootstrap)
    monkeypatch.delitem(sys.modules, "rliable.library", raising=False)
    return pytest.importorskip("rliable.library")


def test_profiles_are_rliables(library):
    table, thresholds = equal(), np.linspace(0, 5, 23)
    ours = profile(list(table.T), thresholds)
    np.testing.assert_allclose(ours.share, [library.run_score_deviation(table, tau) for tau in thresholds])
    assert (ours.low <= ours.share + 1e-12).all() and (ours.share <= ours.high + 1e-12).all()


def test_the_probability_of_improvement_is_rliables():
    metrics = pytest.importorskip("rliable.metrics")
    first, second = np.round(equal(5, 4, 1), 1), np.round(equal(7, 4, 2), 1)  # rounded: some runs are equal
    ours = probability_of_improvement(list(first.T), list(second.T))
    assert ours == pytest.approx(metrics.probability_of_improvement(first, second))
    mirrored = probability_of_improvement(list(second.T), list(first.T))
    assert ours + mirrored == pytest.approx(1.0)


def test_the_interval_of_an_improvement_is_a_bootstrap_of_both():
    rng = np.random.default_rng(4)
    first = [rng.normal(0.4, 1.0, n) for n in (5, 6)]
    second = [rng.normal(0.0, 1.0, n) for n in (4, 5)]
    ours = improvement_interval(first, second, reps=4000)
    drawn = [
        probability_of_improvement([rng.choice(x, len(x)) for x in first], [rng.choice(y, len(y)) for y in second])
        for _ in range(4000)
    ]
    np.testing.assert_allclose([ours.low, ours.high], np.percentile(drawn, [2.5, 97.5]), atol=0.03)
    assert ours.low < ours.estimate < ours.high


def test_pairs_repeat_and_do_not_depend_on_other_agents_asked_for():
    lists = {name: list(equal(4, 3, seed).T) for seed, name in enumerate("abc")}
    every = improvements(lists, [("a", "b"), ("b", "c")])
    assert every == improvements(lists, [("a", "b"), ("b", "c")])
    assert improvements(lists, [("b", "c")])["b", "c"] == every["b", "c"]


def test_min_max_is_relative_to_the_runs():
    lists = {"a": [np.array([0.0, 5.0]), np.array([7.0])], "b": [np.array([10.0]), np.array([7.0, 7.0])]}
    found = min_max(lists)
    np.testing.assert_allclose(found["a"][0], [0.0, 0.5])
    np.testing.assert_allclose(found["b"][0], [1.0])
    assert found["a"][1].tolist() == [1.0] and found["b"][1].tolist() == [1.0, 1.0]
