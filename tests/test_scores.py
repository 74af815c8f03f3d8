"""Scores: worked by hand, against brute force and rliable, by their properties, and refusing what does not compare."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tremble.report.references import human_random
from tremble.report.scores import (
    AGGREGATES,
    ScoreTable,
    Wins,
    count_wins,
    human_normalised,
    iqm,
    mean,
    median,
    optimality_gap,
    stratified_bootstrap,
)
from tremble.settings import SettingsError

MATRICES = st.integers(1, 5).flatmap(
    lambda runs: st.integers(1, 9).flatmap(
        lambda games: st.lists(st.floats(-5, 50, allow_nan=False), min_size=runs * games, max_size=runs * games).map(
            lambda values: np.array(values).reshape(runs, games)
        )
    )
)


def brute_force_iqm(values):
    """Sort, drop floor(n/4) at either end, average; without scipy."""
    values = sorted(values)
    cut = len(values) // 4
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept)


def test_normalised_by_hand():
    # Pong: random -20.7, human 14.6. A perfect 21: (21 + 20.7) / (14.6 + 20.7) = 41.7 / 35.3.
    pong = human_random().loc["Pong"]
    assert human_normalised(21.0, pong["random"], pong["human"]) == pytest.approx(41.7 / 35.3)
    assert human_normalised(pong["random"], pong["random"], pong["human"]) == 0.0
    assert human_normalised(pong["human"], pong["random"], pong["human"]) == 1.0


def test_aggregates_by_hand():
    # Two runs of four games; game means 0.5, 1, 2, 20.
    scores = np.array([[0.0, 1.0, 3.0, 10.0], [1.0, 1.0, 1.0, 30.0]])
    assert mean(scores) == pytest.approx((0.5 + 1 + 2 + 20) / 4)
    assert median(scores) == pytest.approx((1 + 2) / 2)
    assert iqm(scores) == pytest.approx((1 + 1 + 1 + 3) / 4)  # of 0 1 1 1 1 3 10 30 the middle four
    assert optimality_gap(scores) == pytest.approx(1 - (0 + 7) / 8)


@hypothesis.given(MATRICES)
def test_iqm_is_brute_force_and_rliables(scores):
    metrics = pytest.importorskip("rliable.metrics")
    assert iqm(scores) == pytest.approx(brute_force_iqm(scores.ravel().tolist()))
    theirs = {
        "mean": metrics.aggregate_mean,
        "median": metrics.aggregate_median,
        "iqm": metrics.aggregate_iqm,
        "optimality_gap": metrics.aggregate_optimality_gap,
    }
    for name, ours in AGGREGATES.items():
        assert ours(scores) == pytest.approx(theirs[name](scores), abs=1e-12)


@hypothesis.given(MATRICES, st.floats(0.1, 10), st.floats(-3, 3), st.randoms(use_true_random=False))
def test_properties_of_aggregates(scores, scale, shift, shuffler):
    for summary in (mean, median, iqm):
        assert scores.min() - 1e-9 <= summary(scores) <= scores.max() + 1e-9
        assert summary(scale * scores + shift) == pytest.approx(scale * summary(scores) + shift, abs=1e-6)
    assert optimality_gap(np.minimum(scores, 1.0)) == pytest.approx(optimality_gap(scores))
    assert optimality_gap(scores + 1.0) <= optimality_gap(scores) + 1e-12
    order = list(range(scores.shape[1]))
    shuffler.shuffle(order)
    for summary in AGGREGATES.values():
        assert summary(scores[:, order]) == pytest.approx(summary(scores))


@hypothesis.given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1)
)
def test_wins_partition_the_games_and_mirror(pairs):
    first = pd.Series({k: v[0] for k, v in pairs.items()}, dtype=float)
    second = pd.Series({k: v[1] for k, v in pairs.items()}, dtype=float)
    one, other = count_wins(first, second), count_wins(second, first)
    assert one.games == len(pairs) and (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)
    assert one.sign_test == pytest.approx(other.sign_test)


def test_games_that_one_lacks_are_not_won():
    first = pd.Series({"a": 1.0, "b": 2.0, "c": 3.0})
    second = pd.Series({"a": 1.0, "b": 1.0, "c": np.nan, "d": 0.0})
    assert count_wins(first, second) == Wins(1, 1, 0)
    with pytest.raises(SettingsError, match="no game that both"):
        count_wins(first, pd.Series({"z": 1.0}))


def test_sign_test_by_hand():
    # 5 wins, 1 loss: P(0, 1, 5 or 6 of 6 heads) = (1 + 6 + 6 + 1) / 64.
    assert Wins(5, 7, 1).sign_test == pytest.approx(14 / 64)
    assert Wins(0, 9, 0).sign_test == 1.0


def table(protocol="paper", returns="evaluation", agent="pqr", runs=3, games=("Pong", "breakout"), shift=0.0):
    rows = [(agent, game, seed, 10.0 * seed + shift + i) for i, game in enumerate(games) for seed in range(runs)]
    return ScoreTable(protocol, returns, pd.DataFrame(rows, columns=["agent", "game", "seed", "score"]))


def test_a_table_spells_games_and_normalises():
    ours = table()
    assert set(ours.scores["game"]) == {"Pong", "Breakout"}
    # Breakout (random 1.7, human 30.5) comes first in the alphabet; seeds give 1, 11, 21 there.
    expected = [[(1 + 10 * s - 1.7) / 28.8, (10 * s + 20.7) / 35.3] for s in range(3)]
    np.testing.assert_allclose(ours.matrix("pqr"), expected)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: f.drop(columns="seed"), "lacks"),
        (lambda f: f.assign(score=np.nan), "not a number"),
        (lambda f: f.assign(score="many"), "not a number"),
        (lambda f: f.assign(game="Chess"), "no human score"),
        (lambda f: pd.concat([f, f]), "two scores"),
    ],
)
def test_bad_tables_are_refused(change, message):
    with pytest.raises(SettingsError, match=message):
        ScoreTable("paper", "evaluation", change(table().scores))


def test_unequal_runs_and_unknown_agents_are_refused():
    uneven = ScoreTable("paper", "evaluation", table().scores.iloc[:-1])
    with pytest.raises(SettingsError, match="2 runs of Breakout but 3 of Pong"):
        uneven.matrix("pqr")
    with pytest.raises(SettingsError, match="there are: pqr"):
        table().matrix("dqn")


def test_agents_are_in_order_of_appearance():
    both = pd.concat([table().scores, table(agent="qrdqn", shift=5.0).scores])
    assert ScoreTable("paper", "evaluation", both).agents == ["pqr", "qrdqn"]


def test_one_run_has_no_interval():
    assert not np.isfinite(table(runs=1).aggregate()["pqr", "mean"].low)


def test_intervals_are_stratified():
    """Runs are drawn within games: games that never vary give an interval of no width, however much games differ."""
    rows = [("pqr", game, seed, score) for game, score in (("Pong", 21.0), ("Breakout", 400.0)) for seed in range(5)]
    sure = ScoreTable("paper", "evaluation", pd.DataFrame(rows, columns=["agent", "game", "seed", "score"]))
    for interval in sure.aggregate(reps=200).values():
        assert interval.low == pytest.approx(interval.estimate) == pytest.approx(interval.high)


def test_intervals_repeat_cover_and_shrink():
    few = table(runs=4).aggregate(reps=300)
    assert few == table(runs=4).aggregate(reps=300)
    for (_, name), interval in few.items():
        assert interval.low <= interval.estimate <= interval.high and interval.n == 4, name
    rng = np.random.default_rng(0)

    def width(runs):
        rows = [("a", game, s, rng.normal(10, 3)) for game in ("Pong", "Breakout", "Alien") for s in range(runs)]
        made = ScoreTable("paper", "evaluation", pd.DataFrame(rows, columns=["agent", "game", "seed", "score"]))
        interval = stratified_bootstrap(made.matrix("a"), mean, reps=400)
        return interval.high - interval.low

    assert width(40) < width(4)


def test_the_bootstrap_of_the_mean_is_its_standard_error():
    """For many runs the interval of the mean is normal: +-1.96 sqrt(sum var_g / n) / games."""
    rng = np.random.default_rng(1)
    runs, games = 60, ("Pong", "Breakout", "Alien", "Seaquest")
    rows = [(g, s, rng.normal(0, 1)) for g in games for s in range(runs)]
    frame = pd.DataFrame([("a", g, s, x) for g, s, x in rows], columns=["agent", "game", "seed", "score"])
    ours = ScoreTable("paper", "evaluation", frame)
    matrix = ours.matrix("a")
    interval = stratified_bootstrap(matrix, mean, reps=4000)
    error = np.sqrt((matrix.var(0) / runs).sum()) / len(games)
    assert interval.half_width == pytest.approx(1.96 * error, rel=0.08)


def test_the_interval_is_scipys():
    """SciPy's bootstrap of several samples draws within each of them: the same thing, by other code and other draws."""
    scores = np.random.default_rng(2).gamma(2.0, 1.0, size=(5, 6))
    for summary in AGGREGATES.values():
        ours = stratified_bootstrap(scores, summary, reps=1000)
        theirs = stats.bootstrap(
            tuple(scores.T),
            lambda *games, summary=summary: summary(np.stack(games, axis=1)),
            n_resamples=1000,
            vectorized=False,
            method="percentile",
            rng=np.random.default_rng(3),
        ).confidence_interval
        four_errors = 0.12 * (theirs.high - theirs.low)  # of the ends, from 1,000 draws each
        np.testing.assert_allclose([ours.low, ours.high], [theirs.low, theirs.high], atol=four_errors)
