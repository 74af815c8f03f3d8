"""Risk measures against closed forms, quadrature and linear programs, on all kinds of weighted atoms; and their use."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import predict_each
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.interpolate import BSpline
from scipy.optimize import linprog
from scipy.stats import beta, norm, uniform

import tremble
from tremble.cli import main as cli
from tremble.core import Clock, Transition
from tremble.criteria import (
    CPW,
    CRITERIA,
    Criterion,
    CustomDistortion,
    CVaR,
    Distortion,
    MeanVariance,
    Norm,
    Perturbed,
    Power,
    Utility,
    VaR,
    Wang,
    WorstCase,
    make_criterion,
)
from tremble.dist import ReturnDist
from tremble.learn import bootstrap_target
from tremble.presets import make
from tremble.records import CheckpointError
from tremble.schedules import Schedule
from tremble.settings import SettingsError, describe, override

NOW = Clock(9, 9, 9, 9)
"""t = 10."""


def score(criterion: Criterion, dist: ReturnDist) -> np.ndarray:
    return np.asarray(criterion.score(dist, criterion.draw(jax.random.key(0)), NOW))


# Closed forms on many atoms -------------------------------------------------------------------------------------------


N = 4000
MIDDLE = (np.arange(N) + 0.5) / N


def fixed_support(law: Any) -> tuple[np.ndarray, np.ndarray]:
    """What a categorical head predicts; most of its atoms carry next to nothing."""
    edges = np.linspace(law.ppf(1e-9) - 3 * law.std(), law.ppf(1 - 1e-9) + 3 * law.std(), N + 1)
    return (edges[1:] + edges[:-1]) / 2, np.diff(law.cdf(edges))


def uneven_levels(law: Any) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles at levels that were proposed or drawn, in any order."""
    generator = np.random.default_rng(1)
    edges = np.concatenate([[0], np.sort(generator.random(N - 1)), [1]])
    order = generator.permutation(N)
    return law.ppf((edges[1:] + edges[:-1]) / 2)[order], np.diff(edges)[order]


def empty_atoms(law: Any) -> tuple[np.ndarray, np.ndarray]:
    """Atoms without mass, where nothing can happen."""
    filled = np.arange(N) % 2 == 0
    atoms = np.where(filled, law.ppf(np.repeat((np.arange(N / 2) + 0.5) / (N / 2), 2)), np.resize([-1e6, 0, 1e6], N))
    return atoms, filled / filled.sum()


def discretised(law: Any) -> list[ReturnDist]:
    """What a quantile head predicts, and three kinds of weighted atoms side by side."""
    kinds = [fixed_support(law), uneven_levels(law), empty_atoms(law)]
    weighted = ReturnDist(np.stack([atoms for atoms, _ in kinds]), np.stack([weights for _, weights in kinds]))
    return [ReturnDist(np.random.default_rng(0).permutation(law.ppf(MIDDLE))[None]), weighted]


NORMAL = norm(3.0, 2.0)
BETA = beta(2.0, 5.0)


def cpw(x: float, eta: float) -> float:
    return x**eta / (x**eta + (1 - x) ** eta) ** (1 / eta)


def bates(n: int) -> Callable[[float], float]:
    """Distribution function of the mean of n uniform numbers; the density of their sum is a B-spline."""
    integral = BSpline.basis_element(np.arange(n + 1), extrapolate=False).antiderivative()
    return lambda u: 1.0 if u >= 1 else float(integral(n * u))


def by_cdf_form(h: Callable[[float], float]) -> float:
    """int z d(h o F) = 1 - int_0^1 h(F(z)) dz, on [0, 1]."""
    return 1 - quad(lambda z: h(float(BETA.cdf(z))), 0, 1, limit=200)[0]


def by_level_form(level: Callable[[float], float]) -> float:
    return quad(lambda tau: float(BETA.ppf(level(tau))), 0, 1, limit=200)[0]


CLOSED = {
    "wang averse": (Wang(-0.75), NORMAL, 3 - 0.75 * 2),
    "wang seeking": (Wang(0.4), NORMAL, 3 + 0.4 * 2),
    "cvar 0.25": (CVaR(0.25), NORMAL, 3 - 2 * norm.pdf(norm.ppf(0.25)) / 0.25),
    "cvar 0.1": (CVaR(0.1), NORMAL, 3 - 2 * norm.pdf(norm.ppf(0.1)) / 0.1),
    "cvar 1": (CVaR(1.0), NORMAL, 3.0),
    "power averse": (Power(-2.0), uniform(), 1 / 4),
    "power seeking": (Power(2.0), uniform(), 3 / 4),
    "power averse, not whole": (Power(-0.5), uniform(), 1 / 2.5),
    "var 0.1": (VaR(0.1), NORMAL, NORMAL.ppf(0.1)),
    "median": (VaR(0.5), NORMAL, 3.0),
    "cpw as levels": (CPW(0.71), BETA, by_level_form(lambda tau: cpw(tau, 0.71))),
    "cpw as probabilities": (CPW(0.71, "cdf"), BETA, by_cdf_form(lambda u: cpw(u, 0.71))),
    "norm 2": (Norm(2), BETA, by_cdf_form(bates(2))),
    "norm 3": (Norm(3), BETA, by_cdf_form(bates(3))),
    "norm 12": (Norm(12), BETA, by_cdf_form(bates(12))),
    "mean_variance": (MeanVariance(0.3), NORMAL, 3 - 0.3 * 4),
    "exponential averse": (Utility(0.5), NORMAL, 3 - 0.5 * 4 / 2),
    "exponential seeking": (Utility(-0.5), NORMAL, 3 + 0.5 * 4 / 2),
    "worst_case": (WorstCase(0.3, schedule=Schedule("const")), uniform(2, 4), 0.7 * 4 + 0.3 * 2),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name: str):
    criterion, law, expected = CLOSED[name]
    for dist in discretised(law):
        # Enough for the grid; the values in question are further from the mean, or meant to be the mean.
        np.testing.assert_allclose(score(criterion, dist), expected, atol=5e-3 * law.std())


def test_oracles_tell_the_two_conventions_and_the_mean_apart():
    values = [CLOSED[name][2] for name in ("cpw as levels", "cpw as probabilities", "norm 2", "norm 3", "norm 12")]
    assert np.diff(sorted([*values, BETA.mean()])).min() > 5e-3 * BETA.std()


def test_by_hand_on_three_atoms():
    dist = ReturnDist(np.array([4.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25]))
    # The lowest 0.6 of the mass: 0.5 at 1 and 0.1 at 2.
    np.testing.assert_allclose(score(CVaR(0.6), dist), (0.5 * 1 + 0.1 * 2) / 0.6, rtol=1e-6)
    assert [float(score(VaR(eta), dist)) for eta in (0.1, 0.5, 0.51, 0.75, 0.76, 1.0)] == [1, 1, 2, 2, 4, 4]
    # The worst of three draws is above 1 with probability 1/8, above 2 with 1/64.
    np.testing.assert_allclose(score(Power(-2.0), dist), 1 + 1 / 8 + 2 / 64, rtol=1e-6)
    # The best is 1 with probability 1/8, at most 2 with 27/64.
    np.testing.assert_allclose(score(Power(2.0), dist), (8 + 2 * 19 + 4 * 37) / 64, rtol=1e-6)
    # Mean 2, variance (4 + 0.5 * 1) - ... = 0.25 * 4 + 0.5 * 1
    np.testing.assert_allclose(score(MeanVariance(2.0), dist), 2 - 2 * 1.5, rtol=1e-6)
    np.testing.assert_allclose(score(Utility(function=jnp.sqrt), dist), 0.25 * 2 + 0.5 + 0.25 * np.sqrt(2), rtol=1e-6)


# The two forms --------------------------------------------------------------------------------------------------------


def cubed(tau: jax.Array) -> jax.Array:
    return tau**3


MEASURES: dict[str, Distortion] = {
    **{name: CRITERIA[name]() for name in ("cvar", "wang", "cpw", "power", "norm", "distortion")},
    "wang seeking": Wang(1.2),
    "power seeking": Power(1.5),
    "cpw as probabilities": CPW(0.71, "cdf"),
    "cpw, steep": CPW(0.3),
    "cpw, other side": CPW(1.8),
    "norm of twelve": Norm(12),
    "levels of one's own": CustomDistortion(cubed, "level"),
}


@pytest.mark.parametrize("name", MEASURES)
def test_a_distortion_rises_from_zero_to_one_and_its_forms_are_inverse(name: str):
    measure = MEASURES[name]
    u = jnp.linspace(0.0, 1.0, 401)
    h, level = (np.asarray(jax.jit(form)(u)) for form in (measure.cdf_form, measure.level_form))
    # h of CVaR is flat above eta, so its inverse ends there.
    assert (h[0], h[-1], level[0]) == (0, 1, 0) and level[-1] == (measure.eta if isinstance(measure, CVaR) else 1)
    assert np.diff(h).min() >= -1e-6 and np.diff(level).min() >= -1e-6
    np.testing.assert_allclose(jax.jit(measure.cdf_form)(level), u, atol=2e-5)


@pytest.mark.parametrize("name", ["cvar", "var", "wang", "power seeking", "cpw", "norm", "levels of one's own"])
def test_both_forms_score_alike(name: str):
    # The level form by its definition, int_0^1 Q(beta(tau)) dtau, on a fine grid of tau and in plain NumPy.
    measure = MEASURES[name] if name in MEASURES else VaR(0.3)
    generator = np.random.default_rng(3)
    atoms, weights = generator.normal(0, 5, (4, 9)), generator.dirichlet(np.ones(9), 4)
    looked_at = np.asarray(measure.level_form(jnp.asarray((np.arange(20_000) + 0.5) / 20_000, jnp.float32)))
    expected = [
        np.sort(a)[np.minimum(np.searchsorted(np.cumsum(w[np.argsort(a)]), looked_at), 8)].mean()
        for a, w in zip(atoms, weights, strict=True)
    ]
    np.testing.assert_allclose(score(measure, ReturnDist(atoms, weights)), expected, atol=5e-3)


@pytest.mark.parametrize(
    ("criterion", "direction"),
    [
        (CVaR(0.5), -1),
        (CVaR(1.0), 0),
        (VaR(0.1), -1),
        (VaR(0.9), 1),
        (Wang(-0.3), -1),
        (Wang(0.3), 1),
        (Wang(0.0), 0),
        (Power(-1.0), -1),
        (Power(1.0), 1),
        (Power(0.0), 0),
        (Norm(1), 0),
        (CPW(1.0), 0),
        (CPW(1.0, "cdf"), 0),
        (CustomDistortion(jnp.sqrt), -1),
        (CustomDistortion(jnp.sqrt, "level"), 1),
        (CustomDistortion(), 0),
        (MeanVariance(0.1), -1),
        (MeanVariance(-0.1), 1),
        (MeanVariance(0.0), 0),
        (Utility(0.1), -1),
        (Utility(-0.1), 1),
        (Utility(0.0), 0),
        (WorstCase(0.2, schedule=Schedule("const")), -1),
    ],
)
def test_direction_versus_the_mean(criterion: Criterion, direction: int):
    dist = ReturnDist(np.array([7.0, -3.0, 1.0, 2.5]), np.array([0.2, 0.3, 0.1, 0.4]))
    gap = float(score(criterion, dist) - dist.mean())
    assert np.sign(gap) * (abs(gap) > 1e-5) == direction


def test_what_the_tails_count_for_under_cpw():
    # Below 1 the level form looks away from both tails, the probability form towards them.
    tails = ReturnDist(np.array([-10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert score(CPW(0.6), tails) > -1 > score(CPW(0.6, "cdf"), tails)
    assert score(CPW(0.6), tails.affine(0, -1)) < 1 < score(CPW(0.6, "cdf"), tails.affine(0, -1))


# Laws -----------------------------------------------------------------------------------------------------------------

ATOMS = arrays(np.float32, (2, 5), elements=st.floats(-50, 50, width=32))
WEIGHTS = arrays(np.float32, (2, 5), elements=st.floats(0.0625, 1, width=32)).map(
    lambda w: w / w.sum(-1, keepdims=True)
)
SHIFT, SCALE = st.floats(-100, 100, width=32), st.floats(0.125, 8, width=32)


@pytest.mark.parametrize(
    "criterion",
    [Power(1.5), CPW(0.71, "cdf"), CustomDistortion(cubed, "level"), WorstCase(0.4, schedule=Schedule("const"))],
    ids=lambda c: type(c).__name__,
)
def test_affine_equivariance(criterion: Criterion):
    scored = jax.jit(lambda atoms, weights: criterion.score(ReturnDist(atoms, weights), (), NOW))

    @given(ATOMS, WEIGHTS, SHIFT, SCALE)
    def check(atoms: np.ndarray, weights: np.ndarray, a: float, b: float):
        moved = scored(np.float32(a + b * atoms), weights)
        np.testing.assert_allclose(moved, a + b * np.asarray(scored(atoms, weights)), atol=1e-3, rtol=1e-4)

    check()


@pytest.mark.parametrize("kind", [MeanVariance, Utility, WorstCase])
def test_scale_stands_in_for_aversion(kind: Any):
    # A parameter with a unit: score_p(a + b Z) = a + b score_q(Z) with q = b p (aversion), q = p / b (a gap).
    options = {"schedule": Schedule("const"), "ambiguity": "gap"} if kind is WorstCase else {}
    scored = jax.jit(lambda p, atoms, w: kind(p, **options).score(ReturnDist(atoms, w), (), NOW))

    @given(ATOMS, WEIGHTS, SHIFT, SCALE, st.floats(0.0625, 2, width=32))
    def check(atoms: np.ndarray, weights: np.ndarray, a: float, b: float, p: float):
        q = p / b if kind is WorstCase else p * b
        moved, still = scored(p, np.float32(a + b * atoms), weights), np.asarray(scored(q, atoms, weights))
        np.testing.assert_allclose(moved, a + b * still, atol=2e-3 * b, rtol=2e-4)

    check()


def test_a_rising_line_through_utility_changes_no_ranking():
    dist = ReturnDist(np.random.default_rng(0).normal(0, 1, (6, 7)))
    plain = score(Utility(function=jnp.tanh), dist)
    np.testing.assert_allclose(plain, np.tanh(dist.atoms).mean(-1), rtol=1e-5)
    np.testing.assert_allclose(score(Utility(function=lambda z: 3 + 2 * jnp.tanh(z)), dist), 3 + 2 * plain, rtol=1e-5)


@pytest.mark.parametrize("aversion", [1e-7, 1e-4, 1.0, 30.0, 1e4, -1e-4, -30.0])
def test_exponential_utility_of_any_aversion(aversion: float):
    # Against float64, where a plain sum will do after the largest exponent is taken out.
    generator = np.random.default_rng(1)
    atoms, weights = generator.normal(2, 3, (3, 50)), generator.dirichlet(np.full(50, 0.1), 3)
    exponent = -aversion * atoms
    largest = np.where(weights > 1e-38, exponent, -np.inf).max(-1, keepdims=True)
    expected = -(largest[:, 0] + np.log((weights * np.exp(exponent - largest)).sum(-1))) / aversion
    np.testing.assert_allclose(score(Utility(aversion), ReturnDist(atoms, weights)), expected, atol=2e-4, rtol=1e-4)


# The worst case -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 0.3, 2.0, 100.0])
def test_worst_case_is_the_minimum_over_the_ambiguity_set(delta: float):
    # Variables q_i = w_i xi_i: min q theta subject to q >= 0, sum q = 1 and |q theta - mean| <= delta.
    generator = np.random.default_rng(4)
    for _ in range(5):
        theta, w = generator.normal(0, 4, 7), generator.dirichlet(np.ones(7))
        mean = w @ theta
        least = linprog(theta, np.stack([theta, -theta]), [mean + delta, delta - mean], np.ones((1, 7)), [1.0]).fun
        criterion = WorstCase(delta, schedule=Schedule("const"), ambiguity="gap")
        np.testing.assert_allclose(score(criterion, ReturnDist(theta, w)), least, atol=1e-5)


@pytest.mark.parametrize("delta", [0.0, 0.3, 1.0])
def test_worst_case_is_the_minimum_over_what_the_algorithm_may_draw(delta: float):
    # min over x on the simplex of (1/N) sum_i (1 + delta (N x_i - 1)) theta_i.
    theta, n = np.random.default_rng(5).normal(0, 4, 7), 7
    free = linprog(delta * theta, A_eq=np.ones((1, n)), b_eq=[1.0]).fun
    criterion = WorstCase(delta, schedule=Schedule("const"))
    np.testing.assert_allclose(score(criterion, ReturnDist(theta)), (1 - delta) * theta.mean() + free, atol=1e-5)


@pytest.mark.parametrize("delta", [0.6, 3.0, 500.0])
def test_no_draw_of_pqr_is_below_the_worst_case(delta: float):
    theta, n = np.random.default_rng(6).normal(0, 4, 8), 8
    pqr = Perturbed(delta, n_bins=n, schedule=Schedule("const"))
    draws = [*np.random.default_rng(7).dirichlet(np.full(n, 0.1), 300), np.eye(n)[np.argmin(theta)]]
    scores = jax.vmap(lambda x: pqr.score(ReturnDist(theta), x, NOW))(jnp.asarray(draws, jnp.float32))
    least = score(WorstCase(delta, schedule=Schedule("const")), ReturnDist(theta))
    assert scores.min() >= least - 1e-4
    np.testing.assert_allclose(scores[-1], least, atol=1e-4)


def test_worst_case_shrinks_as_pqr_does():
    clock = Clock(99, 49, 9, 399)
    for schedule in (Schedule(), Schedule("sqrt_log"), Schedule(t_unit="updates", schedule_epsilon=0.5)):
        delta = Perturbed(schedule=schedule).delta(clock)
        assert WorstCase(schedule=schedule).delta(clock) == delta
        assert WorstCase(schedule=schedule).metrics((), clock) == {"delta": delta}


# Any numbers, any transformation --------------------------------------------------------------------------------------

EXTREME = [
    CVaR(1e-3),
    VaR(1e-3),
    Wang(-6.0),
    Wang(6.0),
    Power(-60.0),
    Power(60.0),
    CPW(0.285),
    CPW(4.0, "cdf"),
    Norm(12),
    CustomDistortion(cubed),
    MeanVariance(1.0),
    Utility(1e3),
    Utility(-1e3),
    Utility(1e-6),
    WorstCase(1e6),
]


@pytest.mark.parametrize("criterion", EXTREME, ids=lambda c: type(c).__name__)
def test_scores_are_finite_and_within_the_returns(criterion: Criterion):
    generator = np.random.default_rng(8)
    atoms = np.stack([generator.normal(0, 1, 51), np.full(51, -3.0), generator.normal(1e5, 1e4, 51), np.arange(51.0)])
    peaked = np.full((4, 51), 1e-30)
    peaked[:, 25] = 1
    missing = np.zeros((4, 51))
    missing[:, 10:20] = 0.1
    weights = np.stack([np.full((4, 51), 1 / 51), generator.dirichlet(np.full(51, 0.05), 4), peaked, missing])
    dist = ReturnDist(np.float32([atoms] * 4), weights)
    scores = score(criterion, dist)
    assert scores.dtype == np.float32 and np.isfinite(scores).all()
    np.testing.assert_allclose(scores[:, 1], -3, rtol=1e-5)
    if not isinstance(criterion, MeanVariance):
        room = 1e-5 * np.abs(dist.atoms).max(-1)
        assert np.all(scores >= dist.min() - room) and np.all(scores <= dist.max() + room)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (CVaR, [0.1, 0.5, 1.0]),
        (Wang, [-1.0, 0.0, 1.0]),
        (Power, [-1.0, 0.0, 2.0]),
        (CPW, [0.5, 0.71, 1.0]),
        (Utility, [-1.0, 0.0, 1.0]),
        (WorstCase, [0.5, 2.0, 9.0]),
    ],
)
def test_parameters_may_be_traced(kind: Any, values: list[float]):
    dist = ReturnDist(np.random.default_rng(9).normal(0, 1, (3, 8)))
    mapped = jax.jit(jax.vmap(lambda p: kind(p).score(dist, (), NOW)))(jnp.asarray(values, jnp.float32))
    assert len(np.unique(np.asarray(mapped)[:, 0].round(4))) == 3
    for row, value in zip(mapped, values, strict=True):
        np.testing.assert_allclose(row, score(kind(value), dist), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CVaR(0.0), "eta must be above 0 and at most 1, got 0"),
        (lambda: VaR(1.5), "eta must be above 0 and at most 1, got 1.5"),
        (lambda: CPW(0.2), "eta must be above 0.28, got 0.2"),
        (lambda: Norm(0), "eta must be between 1 and 12, got 0"),
        (lambda: make_criterion("norm", eta=2.5), "whole number"),
        (lambda: CustomDistortion(jnp.cos), "0 to 0 and 1 to 1"),
        (lambda: CustomDistortion(lambda u: u + jnp.sin(2 * jnp.pi * u)), "must not fall"),
        (lambda: make_criterion("utility", function="no_such_module:f"), "cannot be imported"),
        (lambda: make_criterion("utility", function="math:no_such_function"), "cannot be imported"),
        (lambda: make_criterion("utility", function="tanh"), "write module:name"),
        (lambda: make_criterion("utility", function=3), "must be a function"),
        (lambda: make_criterion("cvra"), "did you mean 'cvar'"),
        (lambda: make_criterion("cvar", beta=0.1), "did you mean 'eta'"),
        (lambda: make_criterion(int), "is no criterion"),
        (lambda: make_criterion(ReturnDist), "need a default"),
    ],
)
def test_mistakes_are_explained(build: Callable[[], Any], message: str):
    with pytest.raises(SettingsError, match=message):
        build()


# In an agent ----------------------------------------------------------------------------------------------------------

TINY = {"n_quantiles": 8, "widths": [8], "batch_size": 4}


@pytest.mark.parametrize(("preset", "name"), [("qrdqn", "cvar"), ("c51", "wang")])
def test_the_criterion_selects_and_all_atoms_evaluate(preset: str, name: str):
    agent = make(preset, criterion=name, gamma=0.5, start_steps=0, **TINY)
    state = agent.init(jax.random.key(1), (3,), 5)
    generator = np.random.default_rng(0)
    batch = Transition(
        jnp.asarray(generator.normal(0, 5, (4, 3)), jnp.float32),
        jnp.arange(4),
        jnp.arange(4.0),
        jnp.full(4, 0.5),
        jnp.asarray(generator.normal(0, 5, (4, 3)), jnp.float32),
        jnp.ones(4),
    )
    noise = agent.draw_learn(jax.random.key(2))
    target, _ = bootstrap_target(agent, state, batch, noise, NOW)
    dist = predict_each(agent, state.target_params, batch.obs_t)
    best = score(agent.criterion, dist).argmax(-1)
    for k in range(4):
        np.testing.assert_allclose(target.atoms[k], k + 0.5 * dist.atoms[k, best[k]], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(target.weights[k], dist.weights[k, best[k]], rtol=1e-4, atol=1e-6)


def test_a_criterion_by_name_for_any_agent():
    agent = make("qrdqn", criterion="cvar", eta=0.1, criterion_for="behaviour")
    assert agent.behaviour_criterion == CVaR(0.1) and agent.target_criterion == CRITERIA["mean"]()
    assert make("qrdqn", criterion="pqr", n_quantiles=32).criterion == make("pqr", n_quantiles=32).criterion
    assert make("dqn", criterion="worst_case", ambiguity="gap").criterion.delta_0 == 500.0, "the column's"
    given_ready = Perturbed(delta_0=3.0)
    assert make("qrdqn", criterion=given_ready).criterion is given_ready
    with pytest.raises(SettingsError, match="there is no setting 'eta'"):
        make("qrdqn", eta=0.1)


def test_functions_by_name_and_as_objects(tmp_path, monkeypatch):
    (tmp_path / "attitudes.py").write_text("def squared(u):\n    return u * u\n")
    monkeypatch.syspath_prepend(tmp_path)
    agent = make("qrdqn", criterion="distortion", function="attitudes:squared")
    settings = json.loads(json.dumps(describe(agent)))
    assert settings["criterion.function"] == "attitudes:squared"
    assert override(agent, settings) == agent
    dist = ReturnDist(np.random.default_rng(2).normal(0, 1, (3, 8)))
    np.testing.assert_allclose(score(agent.criterion, dist), score(Power(1.0), dist), rtol=1e-5)
    np.testing.assert_allclose(score(CustomDistortion(cubed), dist), score(Power(2.0), dist), rtol=1e-5)
    assert describe(CustomDistortion(cubed))["function"].endswith("test_risk:cubed")
    assert json.dumps(describe(Utility())) == '{"aversion": 1.0, "function": null}'


PACKAGE = """
from tremble.criteria import Criterion

class Best(Criterion):
    bonus: float = 0.0
    def score(self, dist, noise, clock): return dist.max() + self.bonus
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that adds criteria by entry points, one of them broken, one with a name that is taken."""
    (tmp_path / "outside_criteria.py").write_text(PACKAGE)
    info = tmp_path / "outside_criteria-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-criteria\nVersion: 1.0\n")
    points = ["best = outside_criteria:Best", "broken = outside_criteria:Missing", "cvar = outside_criteria:Best"]
    (info / "entry_points.txt").write_text("\n".join(["[tremble.criteria]", *points, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "outside_criteria", raising=False)


def test_installed_packages_add_names(installed):
    assert tremble.list_criteria()[-2:] == ["best", "broken"] and "outside_criteria" not in sys.modules
    agent = make("qrdqn", criterion="best", bonus=2.0)
    dist = ReturnDist(np.array([[1.0, 5.0], [7.0, 0.0]]))
    np.testing.assert_allclose(score(agent.criterion, dist), [7, 9])
    assert isinstance(make_criterion("cvar"), CVaR)
    assert type(make_criterion("outside_criteria:Best")) is type(agent.criterion)
    with pytest.raises(SettingsError, match=r"'broken' of an installed package \(outside_criteria:Missing\)"):
        make_criterion("broken")
    with pytest.raises(SettingsError, match="did you mean 'best'"):
        make_criterion("bets")


# From end to end ------------------------------------------------------------------------------------------------------


class Crossing(gymnasium.Env):
    """One step that decides nothing, then 1 for sure, or 0 or 3 with equal chances."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place += 1
        if self.place == 1:
            return 1, 0.0, False, False, {}
        reward = 1.0 if action == 0 else 3.0 * float(self.np_random.random() < 0.5)
        return 1, reward, True, False, {}


CROSSING = {
    "steps": 1200,
    "start_steps": 200,
    "n_quantiles": 16,
    "widths": [16],
    "n_step": 1,
    "batch_size": 32,
    "gamma": 1.0,
    "target_tau": 0.1,
    "learning_rate": 0.01,
    "epsilon_start": 0.5,
    "epsilon_end": 0.5,
    "record_every": 500,
}


def cross(criterion_for: str, out: Path | None = None) -> tremble.Run:
    options = {"criterion": "cvar", "eta": 0.25, "criterion_for": criterion_for}
    return tremble.train("qrdqn", Crossing, out=out, **CROSSING, **options)


@pytest.mark.long
@pytest.mark.parametrize(
    ("criterion_for", "acts_safely", "first_value"), [("behaviour", True, 1.5), ("target", False, 1.0)]
)
def test_acting_or_bootstrapping_by_cvar(criterion_for: str, acts_safely: bool, first_value: float):
    agent = cross(criterion_for).agent
    before, at_the_fork = agent.distribution(0), agent.distribution(1)
    np.testing.assert_allclose(at_the_fork.mean(), [1, 1.5], atol=0.25)
    assert (score(agent.agent.behaviour_criterion, at_the_fork).argmax() == 0) == acts_safely
    # The bootstrap decides what the first step is worth: the safe arm's 1, or the gamble's 3/2.
    np.testing.assert_allclose(before.mean(), first_value, atol=0.2)


@pytest.mark.long
def test_acting_and_bootstrapping_by_cvar(tmp_path):
    run = cross("both", tmp_path)
    np.testing.assert_allclose(run.agent.distribution(0).mean(), 1.0, atol=0.2)
    assert tremble.load(tmp_path).agent == run.agent.agent
    # Acting only: the same predictions by one criterion and another.
    safe = tremble.evaluate(run.agent, Crossing, episodes=20, criterion="cvar", eta=0.25)
    bold = tremble.evaluate(run.agent, Crossing, episodes=20, criterion=Wang(1.0))
    assert set(safe.returns) == {1.0} and set(bold.returns) == {0.0, 3.0}
    with pytest.raises(CheckpointError, match=r"different: criterion"):
        tremble.train("qrdqn", Crossing, out=tmp_path, **CROSSING, criterion="var", eta=0.25, criterion_for="both")


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_own.py").write_text(PACKAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["tremble", *arguments])
        cli.main()

    sizes = ["--steps", "20", "--evaluate-every", "0", "--set", "n_quantiles=8", "--set", "widths=8"]
    chosen = ["--set", "criterion=my_own:Best", "--set", "bonus=1", "--out", "run"]
    command("train", "qrdqn", "--env", "CartPole-v1", *sizes, *chosen)
    with pytest.raises(CheckpointError, match="names code to import: criterion=my_own:Best"):
        tremble.load(tmp_path / "run")
    loaded = tremble.load(tmp_path / "run", trust_code=True)
    assert loaded.agent.criterion == importlib.import_module("my_own").Best(1.0)
    with pytest.raises(SystemExit):
        command("evaluate", "run", "--episodes", "2")
    assert "names code to import" in " ".join(capsys.readouterr().err.split())
    command("evaluate", "run", "--episodes", "2", "--criterion", "cvar", "--set", "eta=0.1", "--trust-code")
    row = json.loads((tmp_path / "run" / "evaluation-cvar-eta=0.1-e0-s0.json").read_text())
    assert (row["criterion"], row["criterion.eta"]) == ("cvar", 0.1)
    with pytest.raises(SystemExit):
        command("evaluate", "run", "--criterion", "cvar", "--set", "eta=2", "--trust-code")
    assert "eta must be above 0 and at most 1, got 2" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_an_object_is_recorded_by_its_class_and_its_settings(tmp_path):
    sizes = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
    tremble.train("qrdqn", "CartPole-v1", steps=30, criterion=CVaR(0.25), out=tmp_path, **sizes)
    with pytest.raises(CheckpointError, match=r"names code to import: criterion=tremble.criteria.distortion:CVaR"):
        tremble.load(tmp_path)
    assert tremble.load(tmp_path, trust_code=True).agent.criterion == CVaR(0.25)
