"""Scores of actions: exact laws of the perturbation, closed forms of optimism, and what every criterion owes.

Statistical bounds were set before the first run: five standard errors (a false alarm in a million comparisons or so),
or a p-value of 1e-5 where a whole law is compared. Seeds are fixed, so a test that passes keeps passing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tremble.core import Clock
from tremble.criteria import CRITERIA, Criterion, Mean, Optimism, Perturbed, perturbation, sample_perturbation
from tremble.criteria.gamma import _uniform, log_gammas, threefry
from tremble.dist import ReturnDist
from tremble.schedules import Schedule

ERRORS = 5.0
LEVEL = 1e-5
DELTAS = (0.0, 1e-3, 0.5, 1.0, 1.5, 10.0, 500.0, 1e4, 1e6)
BETAS = (0.05, 0.5, 1.0, 20.0)


def at(transitions: int) -> Clock:
    return Clock(transitions, transitions, transitions, transitions)


FIRST = at(0)
"""t = 1, where Delta_t is delta_0."""


DRAWS, N = 5000, 200


@jax.jit
def _shares(betas: jax.Array, seed: int) -> jax.Array:
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return jax.vmap(lambda key, beta: Perturbed(beta=beta, n_bins=N).draw(key))(keys, betas)


def shares(beta: float, seed: int) -> jax.Array:
    """Draws of Dirichlet(beta, ..., beta) on 200: one size, because the sampler takes seconds to compile for each."""
    return _shares(jnp.full(DRAWS, beta, jnp.float32), seed)


def simplex(n: int, beta: float = 0.5, seed: int = 0) -> jax.Array:
    """One draw by NumPy, where it does not matter whose it is."""
    return jnp.asarray(np.random.default_rng([n, seed]).dirichlet(np.full(n, beta)), jnp.float32)


@jax.jit
def perturbations(x: jax.Array, delta: float) -> jax.Array:
    return jax.vmap(lambda row: perturbation(row, delta))(x)


def quantiles(*shape: int, seed: int = 0) -> np.ndarray:
    """Predicted atoms, out of order as a network's are."""
    return np.random.default_rng([seed, *shape]).normal(3.0, 10.0, shape).astype(np.float32)


def assert_mean(samples: Any, expected: float):
    """The mean over the first axis (of every column) is the expected one, within the standard errors granted.

    Columns are exchangeable, so they share their standard error: each one's own would be small just where a heavy tail
    happened to stay out and the mean is low, which makes even NumPy's Dirichlet fail.
    """
    samples = np.asarray(samples, np.float64)
    error = np.sqrt(samples.var(0).mean() / len(samples))
    assert np.abs(samples.mean(0) - expected).max() <= ERRORS * error + 1e-7


# The perturbation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 200])
def test_xi_is_a_density_for_every_size(n: int):
    theta = quantiles(n)
    for beta in BETAS:
        x = np.random.default_rng(n).dirichlet(np.full(n, beta), 300).astype(np.float32)
        for delta in DELTAS:
            xi = np.asarray(perturbations(x, delta), np.float64)
            assert xi.min() >= 0, (delta, beta)
            assert xi.max() <= n * (1 + 1e-5), (delta, beta)
            assert np.abs(xi.mean(1) - 1).max() <= 1e-5, (delta, beta)
            scores = (xi * theta).mean(1)
            room = 1e-5 * np.abs(theta).max()
            assert scores.min() >= theta.min() - room, (delta, beta)
            assert scores.max() <= theta.max() + room, (delta, beta)


@pytest.mark.parametrize("beta", [0.05, 1.0])
def test_xi_is_one_on_average(beta: float):
    x = shares(beta, 1)
    for delta in (0.5, 3.0, 500.0, 1e6):
        assert_mean(perturbations(x, delta), 1.0)


@pytest.mark.parametrize("beta", [0.05, 1.0])
def test_spread_of_the_score(beta: float):
    # Var(E_xi) = delta^2 Var(theta) / (N beta + 1), Var the population variance, as long as nothing is clipped.
    x, theta = shares(beta, 2), quantiles(N).astype(np.float64)
    for delta in (0.25, 1.0):
        scores = (np.asarray(perturbations(x, delta), np.float64) * theta).mean(1)
        assert_mean(scores, theta.mean())
        assert_mean((scores - theta.mean()) ** 2, delta**2 * theta.var() / (N * beta + 1))


def test_no_nan_in_a_million_draws():
    x = shares(0.05, 3)
    assert x.dtype == jnp.float32
    assert x.size == 10**6
    assert np.isfinite(x).all()
    np.testing.assert_allclose(x.sum(1), 1.0, rtol=1e-5)
    # A spurious uniform vector is how underflow shows elsewhere: its largest share would be 1/200.
    assert float(x.max(1).min()) > 0.02
    for delta in (0.5, 500.0):
        assert np.isfinite(perturbations(x, delta)).all()


@pytest.mark.parametrize("beta", [0.05, 0.7, 3.0])
def test_dirichlet_moments(beta: float):
    # E x_i = 1/n, E sum x_i^2 = (beta + 1) / (n beta + 1)
    x = np.asarray(shares(beta, 4), np.float64)
    assert_mean(x, 1 / N)
    assert_mean((x**2).sum(1), (beta + 1) / (N * beta + 1))


@pytest.mark.parametrize("beta", [0.05, 0.5, 1.0, 6.0])
def test_shares_follow_beta_laws(beta: float):
    # A sum of k of the n shares follows Beta(k beta, (n - k) beta). Below 1e-30 a single share may have underflowed:
    # those are counted, the others compared with the law above 1e-30.
    x, floor = np.asarray(shares(beta, 5), np.float64), 1e-30
    for first, last in ((0, 1), (199, 200), (100, 102), (0, 20), (150, 200), (0, 100)):
        law = scipy.stats.beta((last - first) * beta, (N - last + first) * beta)
        total = x[:, first:last].sum(1)
        tiny = int((total <= floor).sum())
        assert scipy.stats.binomtest(tiny, DRAWS, law.cdf(floor)).pvalue > LEVEL
        above = scipy.stats.kstest(
            total[total > floor],
            lambda z, law=law: (law.cdf(z) - law.cdf(floor)) / (1 - law.cdf(floor)),
        )
        assert above.pvalue > LEVEL, (first, last)


@pytest.mark.parametrize("words", [(0, 0), (2**32 - 1, 2**32 - 1), (0x13198A2E, 0x03707344)])
def test_threefry_is_the_one_of_jax(words: tuple[int, int]):
    key = jnp.array(words, jnp.uint32)
    counters = jnp.concatenate([jnp.zeros(300, jnp.uint32), jnp.arange(300, dtype=jnp.uint32)])
    expected = jax.extend.random.threefry_2x32(key, counters)
    np.testing.assert_array_equal(jnp.concatenate(threefry(key, 300)), expected)


def test_uniform_numbers_are_midpoints():
    words = jnp.array([0, 511, 512, 2**31, 2**32 - 1], jnp.uint32)
    np.testing.assert_array_equal(np.asarray(_uniform(words)) * 2.0**23, [0.5, 0.5, 1.5, 2**22 + 0.5, 2**23 - 0.5])


@pytest.mark.parametrize("shape", [0.05, 1.0, 30.0])
def test_logarithms_of_gamma_variables(shape: float):
    keys = jax.random.split(jax.random.key(11), 2000)
    sample = np.asarray(jax.jit(jax.vmap(lambda key: log_gammas(key, 200, jnp.float32(shape))))(keys), np.float64)
    law = scipy.stats.loggamma(shape)
    assert scipy.stats.kstest(sample.ravel(), law.cdf).pvalue > LEVEL
    # Neighbours in a vector and in time are independent.
    levels = law.cdf(sample)
    for one, other in ((levels[:, 1:], levels[:, :-1]), (levels[1:], levels[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < ERRORS / np.sqrt(one.size)


def test_no_gamma_variables_of_a_shape_that_is_not_positive():
    assert np.isnan(jax.jit(lambda beta: sample_perturbation(jax.random.key(0), 5, 1.0, beta))(0.0)).all()


def test_draws_depend_on_the_key():
    one, again, other = shares(0.5, 8), shares(0.5, 8), shares(0.5, 9)
    np.testing.assert_array_equal(one, again)
    assert np.all(np.abs(one - other).max(1) > 1e-3)
    assert np.all(np.abs(one[1:] - one[:-1]).max(1) > 1e-3)


def test_concentration_may_differ_between_runs():
    # The larger beta, the more even the shares, here with one of three for each draw.
    x = np.asarray(_shares(jnp.resize(jnp.array([0.05, 0.5, 50.0]), DRAWS), 10))
    largest = [x[k::3].max(1).mean() for k in range(3)]
    assert largest[0] > 3 * largest[1] > 9 * largest[2]


def test_sample_perturbation_draws_and_perturbs(monkeypatch: pytest.MonkeyPatch):
    x = jnp.array([0.5, 0.25, 0.25, 0.0])
    asked = []
    monkeypatch.setattr("tremble.criteria.perturbed.sample_dirichlet", lambda *a: asked.append(a[1:]) or x)
    np.testing.assert_array_equal(sample_perturbation(jax.random.key(0), 4, 2.0, 0.3), perturbation(x, 2.0))
    assert asked == [(4, 0.3)]


def test_perturbation_by_hand():
    x = jnp.array([0.5, 0.25, 0.25, 0.0])
    # N x - 1 = (1, 0, 0, -1); delta 1/2 clips nothing: 1 + (1, 0, 0, -1)/2
    assert perturbation(x, 0.5).tolist() == [1.5, 1, 1, 0.5]
    # delta 2: (3, 1, 1, -1) is clipped to (3, 1, 1, 0), of sum 5: times 4/5
    np.testing.assert_allclose(perturbation(x, 2.0), [2.4, 0.8, 0.8, 0], rtol=1e-6)
    # delta without end: (1, 0, 0, -1)_+ of sum 1: all on the first
    np.testing.assert_allclose(perturbation(x, 1e6), [4, 0, 0, 0], atol=1e-4)
    assert perturbation(x, 0.0).tolist() == [1, 1, 1, 1]


def test_limit_of_a_huge_perturbation():
    x = np.random.default_rng(7).dirichlet(np.full(6, 0.5), 300)
    excess = np.maximum(x - 1 / 6, 0)
    np.testing.assert_allclose(perturbations(np.float32(x), 1e6), 6 * excess / excess.sum(1, keepdims=True), atol=2e-3)


# PQR ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.3, 1.0])
def test_small_perturbations_mix_the_mean_with_a_random_one(delta: float):
    # E_xi = (1 - D) mean + D sum_i x_i theta_i for D <= 1, the same x for all actions.
    theta = quantiles(6, 200).astype(np.float64)
    criterion, x = Perturbed(delta_0=delta), simplex(200, 0.05)
    expected = (1 - delta) * theta.mean(1) + delta * theta @ np.asarray(x, np.float64)
    np.testing.assert_allclose(criterion.score(ReturnDist(theta), x, FIRST), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("delta", [0.25, 1.0, 40.0])
def test_top_draw_is_optimism(delta: float):
    # (1 - D) mean + D theta_N for D <= 1, the last quantile alone from there on.
    theta = quantiles(3, 10)
    criterion = Perturbed(delta_0=delta, draw_law="top", n_bins=10)
    assert criterion.draw(jax.random.key(0)) == ()
    mixed = min(delta, 1.0)
    scores = criterion.score(ReturnDist(theta), (), FIRST)
    np.testing.assert_allclose(scores, (1 - mixed) * theta.mean(1) + mixed * theta[:, -1], rtol=1e-4)
    by_value = Perturbed(delta_0=delta, draw_law="top", n_bins=10, order="sorted").score(ReturnDist(theta), (), FIRST)
    np.testing.assert_allclose(by_value, (1 - mixed) * theta.mean(1) + mixed * theta.max(1), rtol=1e-4)


@pytest.mark.parametrize("order", ["index", "sorted"])
@pytest.mark.parametrize("delta", [0.5, 500.0])
def test_distortion_path_equals_direct_path(order: str, delta: float):
    # Equal weights written out take the general path.
    theta = quantiles(3, 200)
    criterion = Perturbed(delta_0=delta, order=order)
    direct = jax.jit(lambda x: criterion.score(ReturnDist(theta), x, FIRST))
    general = jax.jit(lambda x: criterion.score(ReturnDist(theta, jnp.full(200, 1 / 200)), x, FIRST))
    for seed in range(3):
        x = simplex(200, 0.05, seed)
        np.testing.assert_allclose(general(x), direct(x), rtol=1e-3, atol=2e-3)
    ordered = np.sort(theta, 1) if order == "sorted" else theta
    xi = np.asarray(criterion.weights(x, FIRST), np.float64)
    np.testing.assert_allclose(direct(x), (ordered * xi).mean(1), rtol=1e-4, atol=1e-4)


def test_bins_that_do_not_match_the_atoms():
    # Three atoms and four bins refine to twelve cells, in each of which atom and density are constant.
    theta = quantiles(5, 3)
    criterion = Perturbed(delta_0=3.0, n_bins=4)
    for seed in range(4):
        x = simplex(4, 0.5, seed)
        xi = np.asarray(criterion.weights(x, FIRST))
        expected = (np.repeat(theta, 4, axis=1) * np.repeat(xi, 3)).mean(1)
        np.testing.assert_allclose(criterion.score(ReturnDist(theta), x, FIRST), expected, rtol=1e-4, atol=1e-5)


def test_scores_of_weighted_atoms_stay_in_range():
    generator = np.random.default_rng(0)
    weights = jnp.asarray(generator.dirichlet(np.full(51, 0.3), 6), jnp.float32)
    dist = ReturnDist(quantiles(6, 51), weights)
    for criterion in (Perturbed(), Perturbed(n_bins=7, delta_0=0.8, order="sorted")):
        draws = generator.dirichlet(np.full(criterion.n_bins, 0.05), 500).astype(np.float32)
        scores = jax.jit(jax.vmap(lambda x, c=criterion: c.score(dist, x, FIRST)))(draws)
        assert np.all(scores >= dist.min() - 1e-4)
        assert np.all(scores <= dist.max() + 1e-4)
        assert np.all(scores.std(0) > 0.01)


def test_merged_duplicates_score_alike():
    # Two atoms of the same value and one of their joint weight are the same law.
    equal = ReturnDist(jnp.array([4.0, 1.0, 1.0, -2.0, 9.0, 1.0, 9.0, -2.0]))
    merged = ReturnDist(jnp.array([9.0, -2.0, 1.0, 4.0]), jnp.array([2, 2, 3, 1]) / 8)
    for n_bins in (8, 5):
        criterion = Perturbed(delta_0=7.0, n_bins=n_bins, order="sorted")
        both = jax.jit(lambda x, c=criterion: (c.score(merged, x, FIRST), c.score(equal, x, FIRST)))
        for seed in range(4):
            one, other = both(simplex(n_bins, 0.4, seed))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_theory_scaling_bounds_the_gap():
    # alpha = Delta / ((N - 1) v_max): returns within +-v_max are then scored within Delta of their mean.
    n, v_max, delta = 20, 30.0, 4.0
    criterion = Perturbed(delta_0=delta, v_max=v_max, n_bins=n, alpha="theory")
    theta = np.clip(3 * quantiles(6, n), -v_max, v_max)
    x = np.random.default_rng(0).dirichlet(np.full(n, 0.05), 200).astype(np.float32)
    expected = perturbation(jnp.asarray(x[0]), delta / ((n - 1) * v_max))
    np.testing.assert_allclose(criterion.weights(jnp.asarray(x[0]), FIRST), expected, rtol=1e-6)
    scores = jax.jit(jax.vmap(lambda row: criterion.score(ReturnDist(theta), row, FIRST)))(x)
    gap = np.abs(scores - theta.mean(1)).max()
    assert 0 < gap <= delta
    single = Perturbed(n_bins=1, alpha="theory")
    assert single.weights(jnp.ones(1), FIRST).tolist() == [1.0]


def test_perturbation_shrinks_while_a_draw_is_held():
    criterion = Perturbed()
    x = simplex(200, 0.05)
    for t in (1, 2, 1000):
        expected = perturbation(x, 500.0 * t**-1.001)
        np.testing.assert_allclose(criterion.weights(x, at(t - 1)), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(criterion.weights(x, at(10**7)), np.ones(200), atol=0.02)


def test_effective_share():
    # xi = (2.4, .8, .8, 0): (sum)^2 / sum of squares / 4 = 16 / 7.04 / 4
    criterion = Perturbed(delta_0=2.0, n_bins=4)
    np.testing.assert_allclose(criterion.effective_share(jnp.array([0.5, 0.25, 0.25, 0.0]), FIRST), 16 / 7.04 / 4)
    np.testing.assert_allclose(Perturbed(delta_0=0.0, n_bins=4).effective_share(jnp.full(4, 0.25), FIRST), 1.0)


# Optimism -------------------------------------------------------------------------------------------------------------

FOUR = ReturnDist(jnp.array([[0.0, 1.0, 3.0, 7.0], [7.0, 0.0, 1.0, 3.0]]))
"""Mean 2.75; sigma_+^2 = 5 (2 with the upper median) sorted, 1.25 in the second order by index (see test_dist)."""


@pytest.mark.parametrize(
    ("options", "bonus"),
    [
        ({}, [np.sqrt(5), np.sqrt(1.25)]),
        ({"order": "sorted"}, [np.sqrt(5), np.sqrt(5)]),
        ({"median": "upper", "order": "sorted"}, [np.sqrt(2), np.sqrt(2)]),
        ({"bonus_factor": "two"}, [np.sqrt(20), np.sqrt(5)]),
        ({"bonus": "variance"}, [5, 1.25]),
        ({"bonus": "variance", "bonus_factor": "two"}, [20, 5]),
    ],
)
def test_dltv_on_four_atoms(options: dict[str, str], bonus: list[float]):
    # c_t = 50 sqrt(ln 10 / 10) at t = 10
    criterion = CRITERIA["dltv"](**options)
    coefficient = 50 * np.sqrt(np.log(10) / 10)
    scores = criterion.score(FOUR, criterion.draw(jax.random.key(0)), at(9))
    np.testing.assert_allclose(scores, 2.75 + coefficient * np.array(bonus), rtol=1e-5)


def test_dltv_leaves_the_range_and_starts_at_the_mean():
    criterion = Optimism()
    assert np.all(criterion.score(FOUR, (), at(9)) > 7)
    np.testing.assert_allclose(criterion.score(FOUR, (), FIRST), [2.75, 2.75])


def test_coefficient_of_p_dltv():
    # c N(0, ln t / t), the second argument being the variance; one draw for all actions.
    t, c = 40, 3.0
    criterion = CRITERIA["p_dltv"](c=c)
    keys = jax.random.split(jax.random.key(0), 20_000)
    score = jax.jit(jax.vmap(lambda k: criterion.score(FOUR, criterion.draw(k), at(t - 1))))
    coefficients = (np.asarray(score(keys), np.float64) - 2.75) / np.sqrt([5, 1.25])
    np.testing.assert_allclose(coefficients[:, 0], coefficients[:, 1], rtol=1e-3, atol=1e-4)
    variance = c**2 * np.log(t) / t
    assert_mean(coefficients[:, 0], 0.0)
    assert_mean(coefficients[:, 0] ** 2, variance)
    assert scipy.stats.kstest(coefficients[:, 0], scipy.stats.norm(0, np.sqrt(variance)).cdf).pvalue > LEVEL


# What every criterion owes --------------------------------------------------------------------------------------------

EQUIVARIANT = [name for name in CRITERIA if name not in ("mean_variance", "utility", "majority_vote")]
"""Two others have a law of their own (see test_risk), and votes do not change at all (see test_explorers)."""
VARIANTS = {
    **{name: (name, {}) for name in EQUIVARIANT},
    "dltv, upper median, sorted": ("dltv", {"median": "upper", "order": "sorted", "bonus_factor": "two"}),
    "pqr, constant, sorted": ("pqr", {"schedule": Schedule("const"), "order": "sorted"}),
    "pqr, top, sqrt_log": ("pqr", {"draw_law": "top", "schedule": Schedule("sqrt_log")}),
    "pqr, theory": ("pqr", {"alpha": "theory"}),
}


def noise_for(criterion: Criterion, seed: int) -> Any:
    """What the criterion draws; shares by NumPy, to spare the compilation of the sampler."""
    if isinstance(criterion, Perturbed) and criterion.draw_law == "dirichlet":
        return simplex(criterion.n_bins, 0.05, seed)
    return criterion.draw(jax.random.key(seed))


@pytest.mark.parametrize(
    ("variant", "weighted"), [(name, False) for name in VARIANTS] + [(name, True) for name in EQUIVARIANT]
)
def test_affine_equivariance(variant: str, weighted: bool):
    # score(a + b Z) = a + b score(Z) for b > 0. ``bonus="variance"`` is left out: it grows with b^2 (next test).
    name, options = VARIANTS[variant]
    criterion = CRITERIA[name](**options)
    theta = quantiles(3, 200)
    weights = np.random.default_rng(1).dirichlet(np.ones(200), 3).astype(np.float32) if weighted else None
    noise = noise_for(criterion, 2)
    score = jax.jit(lambda a, b: criterion.score(ReturnDist(theta, weights).affine(a, b), noise, at(29)))
    plain = np.asarray(score(0.0, 1.0))
    size = np.abs(theta).max() + np.abs(plain).max()

    @given(a=st.floats(-100, 100, width=32), b=st.floats(0.0625, 64, width=32))
    def check(a: float, b: float):
        np.testing.assert_allclose(score(a, b), a + b * plain, atol=2e-5 * (abs(a) + b * size), rtol=0)

    check()


def test_a_variance_bonus_is_not_equivariant():
    criterion = Optimism(bonus="variance")
    # Twice the scale, four times the bonus.
    bonus = criterion.score(FOUR, (), at(9)) - FOUR.mean()
    np.testing.assert_allclose(criterion.score(FOUR.affine(0.0, 2.0), (), at(9)) - 5.5, 4 * bonus, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in CRITERIA if name != "majority_vote"])  # which compares actions
def test_one_score_per_action_for_any_leading_axes(name: str):
    criterion = CRITERIA[name]()
    noise = noise_for(criterion, 0)
    theta = quantiles(2, 3, 200)
    score = jax.jit(lambda atoms: criterion.score(ReturnDist(atoms), noise, at(5)))
    assert score(theta).shape == (2, 3)
    np.testing.assert_allclose(score(theta[1, 2]), score(theta)[1, 2], rtol=1e-5)


@pytest.mark.parametrize("name", CRITERIA)
def test_equal_returns_tie(name: str):
    # One draw serves all actions, so what is the same must score the same.
    criterion = CRITERIA[name]()
    scores = criterion.score(ReturnDist(np.tile(quantiles(200), (4, 1))), noise_for(criterion, 3), at(5))
    assert len(set(scores.tolist())) == 1


def test_mean_is_the_mean():
    assert Mean().score(FOUR, Mean().draw(jax.random.key(0)), FIRST).tolist() == [2.75, 2.75]


UNITS = [
    ({}, 100),
    ({"t_unit": "updates"}, 50),
    ({"t_unit": "episodes"}, 10),
    ({"t_unit": "frames"}, 400),
    ({"t_origin": "learning_start"}, 40),
]


@pytest.mark.parametrize(("options", "t"), UNITS)
def test_clocks(options: dict[str, str], t: int):
    clock = Clock(transitions=99, updates=49, episodes=9, frames=399, start_transitions=60)
    perturbed, optimism = Perturbed(schedule=Schedule(**options)), Optimism(schedule=Schedule("sqrt_log", **options))
    np.testing.assert_allclose(perturbed.delta(clock), 500 * t**-1.001, rtol=1e-5)
    np.testing.assert_allclose(optimism.coefficient(clock), 50 * np.sqrt(np.log(t) / t), rtol=1e-5)


def test_schedules_of_criteria():
    assert Perturbed(schedule=Schedule("const"), delta_0=3.0).delta(at(50)) == 3
    np.testing.assert_allclose(
        Perturbed(schedule=Schedule("sqrt_log"), delta_0=3.0).delta(at(50)), 3 * np.sqrt(np.log(51) / 51)
    )
    np.testing.assert_allclose(Perturbed(schedule=Schedule("power", 1.0)).delta(at(9)), 5.0, rtol=1e-5)
    np.testing.assert_allclose(Optimism(schedule=Schedule("power", 1.0)).coefficient(at(9)), 0.5, rtol=1e-5)


def test_hyperparameters_may_be_traced():
    dist, key, now = ReturnDist(quantiles(3, 200)), jax.random.key(1), at(9)

    # Its other hyperparameter, beta, is traced in `shares`.
    def pqr(delta_0: float | jax.Array) -> jax.Array:
        return Perturbed(delta_0=delta_0).score(dist, simplex(200, 0.05), now)

    deltas = jnp.array([0.5, 50.0, 5000.0])
    mapped = jax.jit(jax.vmap(pqr))(deltas)
    for k in range(3):
        np.testing.assert_allclose(mapped[k], pqr(float(deltas[k])), rtol=1e-4, atol=1e-4)
    assert len(set(mapped[:, 0].tolist())) == 3

    for name in ("dltv", "p_dltv"):

        def optimism(c: float | jax.Array, name: str = name) -> jax.Array:
            criterion = CRITERIA[name](c=c)
            return criterion.score(dist, criterion.draw(key), now)

        mapped = jax.jit(jax.vmap(optimism))(jnp.array([0.0, 5.0, 50.0]))
        np.testing.assert_allclose(mapped[1], optimism(5.0), rtol=1e-4)
        np.testing.assert_allclose(mapped[0], dist.mean(), rtol=1e-5)
        np.testing.assert_allclose(mapped[2] - mapped[0], 10 * (mapped[1] - mapped[0]), rtol=1e-3)
