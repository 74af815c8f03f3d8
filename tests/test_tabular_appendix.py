"""The appendix: inequalities against brute force and linear programmes, and the examples where statements end."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from tremble.criteria.perturbed import reweighted_mean
from tremble.dist import ReturnDist
from tremble.theory import Grid, iterate, perturbed_step, random_draw, random_mdp, top_draw
from tremble.theory.appendix import closure, contraction, difference_of_suprema, supremum_of_sum, uniform_gap
from tremble.theory.atoms import atom_step, merged, zero
from tremble.theory.counterexamples import concentrated, gamble, lasting_errors, limit_bound, tie
from tremble.wasserstein import wasserstein

BINS = 20
vectors = arrays(np.float32, 6, elements=st.floats(-10, 10, width=32)).map(jnp.asarray)
lemmas = jax.jit(lambda f, g: (supremum_of_sum(f, g), difference_of_suprema(f, g), difference_of_suprema(f, g, True)))


@given(vectors, vectors)
def test_the_two_lemmas(f, g):
    summed, different, sharper = jax.device_get(lemmas(f, g))
    f, g = f.tolist(), g.tolist()
    assert summed.left == pytest.approx(max(abs(a + b) for a, b in zip(f, g, strict=True)), abs=1e-5)
    assert different.left == pytest.approx(abs(max(f) - max(g)), abs=1e-5)
    assert different.right == pytest.approx(max(abs(a - b) for a in f for b in g), abs=1e-5)
    assert summed.left <= summed.right + 1e-5
    assert different.left <= sharper.right + 1e-5 and sharper.right <= different.right + 1e-5


SIZES = (4, 3, 2)
step_closure, step_contraction = jax.jit(closure), jax.jit(contraction)
make_mdp = jax.jit(lambda seed: random_mdp(jax.random.key(seed), *SIZES, gamma=0.8, terminal=1))


@given(st.integers(0, 10_000), st.integers(0, 2))
@settings(max_examples=25)
def test_closure_and_contraction(seed, action):
    """E|T Z| <= V_max for any selection, if E|Z| is; E T contracts."""
    mdp, generator = make_mdp(seed), np.random.default_rng(seed)
    bound = float(mdp.v_max())
    atoms = generator.standard_cauchy((4, 3, 5))  # heavy tails: only the mean size is bounded
    atoms *= bound / np.abs(atoms).mean(-1, keepdims=True)
    sides = step_closure(mdp, ReturnDist(jnp.asarray(atoms, jnp.float32)), jnp.full(4, action))
    assert float(sides.left) <= float(sides.right) * (1 + 1e-5) and float(sides.right) <= bound * (1 + 1e-5)
    one, two = (jnp.asarray(generator.normal(size=(4, 3)), jnp.float32) for _ in range(2))
    sides = step_contraction(mdp, one, two)
    assert float(sides.left) <= float(sides.right) + 1e-5


def test_the_mean_has_one_fixed_point():
    """From any start, with the distance halving as gamma says."""
    mdp = make_mdp(3)
    q = 100.0 * jax.random.normal(jax.random.key(0), (4, 3))
    for _ in range(120):
        q = mdp.backup(q.max(-1))
    np.testing.assert_allclose(q, mdp.optimal_q(300), atol=1e-4)


def supremum(xi, bounded):
    """max over non-decreasing z of |mean((xi - 1) z)| with |z| <= 1, or with mean |z| <= 1, as a linear programme."""
    n = len(xi)
    gain = np.concatenate([xi - 1, 1 - xi]) / n  # z = p - m
    rising = np.diff(np.eye(n), axis=0)
    limits, right = [np.hstack([-rising, rising])], [np.zeros(n - 1)]
    if bounded == "mean":
        limits, right = [*limits, np.full((1, 2 * n), 1 / n)], [*right, np.ones(1)]
    top = 1 if bounded == "values" else None
    best = [
        linprog(-sign * gain, np.vstack(limits), np.concatenate(right), bounds=(0, top), method="highs").fun
        for sign in (1, -1)
    ]
    return -min(best)


@pytest.mark.long
@given(st.lists(st.floats(0, 5), min_size=3, max_size=8).filter(lambda x: sum(x) > 0.1))
@settings(max_examples=25)
def test_the_uniform_gap_is_the_supremum(weights):
    xi = np.array(weights) / np.mean(weights)
    for bounded in ("values", "mean"):
        found = float(uniform_gap(jnp.asarray(xi, jnp.float32), 3.0, bounded))
        assert found == pytest.approx(3 * supremum(xi, bounded), abs=1e-4)


@pytest.mark.slow
def test_uniform_convergence_needs_bounded_returns():
    """On the class of the paper, E|Z| <= V_max, a bounded xi that tends to 1 in probability is not enough."""
    step = jax.jit(lambda mdp, z, xi: atom_step(mdp, z, xi, merged(4)).q)
    for n in (10, 200):
        mdp, z, xi = concentrated(n)
        v_max = float(mdp.v_max())
        assert float(jnp.abs(z.atoms * z.weights).sum(-1).max()) <= v_max
        assert float(xi.mean()) == pytest.approx(1.0, abs=1e-5) and float(xi.max()) == 2.0
        assert float((jnp.abs(xi - 1) > 0.12).mean()) == pytest.approx(1 / n), "the share where it is not near 1"
        selected, plain = (step(mdp, z, x) for x in (xi, jnp.ones(n)))
        np.testing.assert_allclose(plain - selected, 0.3 * 0.5 * v_max, rtol=1e-3)
        assert float(uniform_gap(xi, v_max, "mean")) == pytest.approx(v_max, rel=1e-3)
        assert float(uniform_gap(xi, v_max)) <= 2 * v_max / n * 1.2, "with bounded values it vanishes"


DRAWS = {"top": top_draw(BINS), "random": random_draw(BINS)}


@partial(jax.jit, static_argnames="draw")
def errors(mdp, sizes, draw):
    return iterate(mdp, Grid.of(mdp, 61), DRAWS[draw], sizes, jax.random.key(0), mdp.optimal_q(300)).errors


@pytest.mark.parametrize("draw", DRAWS)
def test_sets_of_constant_size_do_not_converge_to_the_optimum(draw):
    mdp, n = gamble(), 200
    assert float(mdp.optimal_q(50)[0].max()) == 0.0, "the sure choice is best"
    constant = np.asarray(errors(mdp, jnp.full(n, 1.0), draw))
    shrinking = np.asarray(errors(mdp, jnp.arange(1.0, n + 1) ** -1.001, draw))
    assert (constant[-50:] > 0.2).any(), "0.9 x 0.25 is lost again and again"
    assert (shrinking[-50:] < 1e-4).all()
    if draw == "top":
        assert (constant[-50:] > 0.2).all(), "optimism loses it every time"
    else:
        assert (constant[-50:] < 0.01).any(), "it has no limit: some draws choose well"
    assert (constant[-50:] <= limit_bound(1.0, 0.9)).all()


@pytest.mark.parametrize("draw, found, error", [("top", 129, 0.1), ("random", 339, 0.09)])
def test_random_mdps_found_by_search(draw, found, error):
    """The worst of 400 keys for each kind, at constant size 0.3: optimism has a wrong limit, random draws have none."""
    key = jax.random.split(jax.random.key(0), 400)[found : found + 1]
    low, high = lasting_errors(key, DRAWS[draw], 0.3, iterations=120)
    if draw == "top":
        assert float(low[0]) > error
    assert error < float(high[0]) <= limit_bound(0.3, 0.9)


@pytest.mark.long
def test_ties_leave_the_return_open_and_the_mean_not():
    """xi_n = 1 +- 1/n on the top level tends to 1; the chosen return alternates between 0 and a coin of 0.9."""
    mdp = tie()
    z, laws = zero(mdp, 8), []
    step = jax.jit(lambda mdp, z, xi: atom_step(mdp, z, xi, merged(8)))
    for n in range(2, 20):
        sign = 1 if n % 2 else -1
        xi = jnp.ones(BINS).at[-1].add(sign / n).at[0].add(-sign / n)
        made = step(mdp, z, xi)
        z = made.z
        np.testing.assert_allclose(made.q[:2], 0.0, atol=1e-6)  # the last row is the end
        laws.append(z[0, 0])
    distances = [
        wasserstein(a.atoms, b.atoms, 1, weights_a=a.weights, weights_b=b.weights) for a, b in pairwise(laws[1:])
    ]
    np.testing.assert_allclose(distances, 0.9, atol=1e-5)


def test_a_vanishing_gap_does_not_force_xi_to_one():
    """The proof says so; a return that is constant has gap 0 under every xi."""
    mdp = gamble()
    grid = Grid.of(mdp, 61)
    constant = jnp.broadcast_to(grid.zero, (3, 2, 61))
    xi = jax.nn.one_hot(3, BINS) * BINS
    assert float(perturbed_step(mdp, grid, constant, xi).gap) < 1e-6 and float(jnp.abs(xi - 1).max()) == BINS - 1


def test_a_vanishing_gap_does_not_force_xi_to_one_where_returns_vary():
    """Nor does it if they vary: levels may be forgotten evenly on both sides."""
    coin = ReturnDist(jnp.array([-1.0, 1.0]), jnp.array([0.5, 0.5]))
    xi = jnp.array([2.0, 0.0, 0.0, 2.0])  # half the levels are forgotten
    assert float(reweighted_mean(coin, xi)) == pytest.approx(0.0, abs=1e-6)
