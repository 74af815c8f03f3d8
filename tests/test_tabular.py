"""The paper's operator on finite MDPs: exact means, and the bounds on a thousand MDPs."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from tremble.criteria.perturbed import perturbation, reweighted_mean
from tremble.dist import ReturnDist
from tremble.theory import (
    FiniteMDP,
    Grid,
    from_gymnasium,
    iterate,
    perturbed_step,
    random_draw,
    random_mdp,
    top_draw,
    worst_draw,
)
from tremble.theory.bounds import recursive, theorem
from tremble.theory.operator import project

N, BINS = 51, 20


def brute_force_q(table, gamma, iterations=3000):
    """Value iteration straight from a Gymnasium table, in float64."""
    q = np.zeros((len(table), len(table[0])))
    for _ in range(iterations):
        q = np.array(
            [
                [
                    sum(p * (r + gamma * (0 if done else q[t].max())) for p, t, r, done in outcomes)
                    for outcomes in row.values()
                ]
                for row in table.values()
            ]
        )
    return q


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1"])
def test_gymnasium_tables(name):
    table = gymnasium.make(name).unwrapped.P
    mdp = from_gymnasium(table, gamma=0.9)
    np.testing.assert_allclose(mdp.law.sum((0, 3)), 1.0, atol=1e-6)
    np.testing.assert_allclose(mdp.optimal_q()[:-1], brute_force_q(table, 0.9, 400), atol=2e-4)


def test_the_projection_keeps_mass_and_mean():
    points = jnp.linspace(-10.0, 10.0, N)
    values = jnp.linspace(-10.0, 10.0, 997)
    mass = project(values, points)
    np.testing.assert_allclose(mass.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(mass @ points, values, atol=1e-4)
    assert ((mass > 1e-6).sum(-1) <= 2).all()


@pytest.mark.slow
@pytest.mark.parametrize("bins", [7, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 20, 64))])
def test_level_means_score_as_the_criterion_of_the_agents_does(bins):
    mdp = random_mdp(jax.random.key(0))
    grid = Grid.of(mdp, N)
    z = jax.random.dirichlet(jax.random.key(1), jnp.full(N, 0.1), (4, 3))
    xi = perturbation(jax.random.dirichlet(jax.random.key(2), jnp.full(bins, 0.2)), 3.0)
    expected = reweighted_mean(ReturnDist(jnp.broadcast_to(grid.points, z.shape), z), xi)
    np.testing.assert_allclose((grid.level_means(z, bins) * xi).mean(-1), expected, atol=2e-5)


def test_without_perturbation_it_is_the_ordinary_operator():
    mdp = random_mdp(jax.random.key(0), terminal=1)
    grid = Grid.of(mdp, N)
    z = jax.random.dirichlet(jax.random.key(1), jnp.ones(N), (mdp.n_states, mdp.n_actions))
    step = perturbed_step(mdp, grid, z, jnp.ones(BINS))
    value = jnp.where(mdp.terminal, 0.0, (z @ grid.points).max(-1))
    np.testing.assert_allclose(step.q, mdp.backup(value), atol=1e-4)
    np.testing.assert_allclose(step.z.sum(-1), 1.0, atol=1e-5)
    assert float(step.gap) < 1e-5 and np.abs(step.loss).max() < 1e-5


def test_targets_are_mixtures_of_unperturbed_distributions():
    """By hand: one action certain to lead from 0 to 1, reward 0.5; at 1 two actions, of which xi picks the riskier."""
    law = np.zeros((2, 2, 2, 2), np.float32)  # rewards 0, 0.5
    law[1, 0, :, 1] = 1.0
    law[0, 1, :, 1] = 1.0
    mdp = FiniteMDP(jnp.asarray(law), jnp.array([0.0, 0.5]), jnp.array([False, False]), 0.5)  # V_max = 1
    grid = Grid.of(mdp, 5)  # -1, -0.5, 0, 0.5, 1
    sure, risky = jnp.array([0, 0, 1, 0, 0.0]), jnp.array([0.5, 0, 0, 0.3, 0.2])  # means 0 and -0.15
    z = jnp.stack([jnp.stack([sure, sure]), jnp.stack([sure, risky])])
    optimist = jnp.array([0.0, 0, 0, 0, 5])  # only the top fifth counts: scores 0 and 1
    step = perturbed_step(mdp, grid, z, optimist)
    # From state 0: 0.5 + 0.5 Z(1, risky) has atoms 0, 0.75, 1 of mass 0.5, 0.3, 0.2; 0.75 is split between 0.5 and 1.
    np.testing.assert_allclose(step.z[0, 0], [0, 0, 0.5, 0.15, 0.35], atol=1e-6)
    np.testing.assert_allclose(step.gap, 1.15, atol=1e-6)  # 1 - (-0.15)
    np.testing.assert_allclose(step.loss[0, 0], 0.5 * 0.15, atol=1e-6)  # gamma (0 - (-0.15))


SCHEDULES = {
    "power": lambda t: 2.0 * t**-1.001,
    "sqrt_log": lambda t: jnp.sqrt(jnp.log(t + 1) / t),
    "constant": lambda t: 0.3 * jnp.ones_like(t),
}
DRAWS = {
    "edge": random_draw(BINS),
    "theory": random_draw(BINS, scaling="theory"),
    "direct": random_draw(BINS, scaling="direct"),
    "top": top_draw(BINS),
    "worst": worst_draw(BINS),
}
LAWS = {
    "uniform": lambda r: r,
    "rare and large": lambda r: 3 * jnp.sign(r) * r**4,
    "coins": jnp.sign,
    "skewed": lambda r: jnp.exp(3 * r) - 1,
}
"""What becomes of rewards that are uniform in [-1, 1]."""
ITERATIONS = 40


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def trajectories(keys, sizes, draw, schedule, law="uniform"):
    def one(key):
        make, walk, g = jax.random.split(key, 3)
        gamma = jax.random.choice(g, jnp.array([0.5, 0.8, 0.9]))
        mdp = random_mdp(make, *sizes, gamma=gamma)
        mdp = eqx.tree_at(lambda m: m.rewards, mdp, LAWS[law](mdp.rewards))
        t = jnp.arange(1, ITERATIONS + 1, dtype=jnp.float32)
        optimal = mdp.optimal_q(300)
        return gamma, mdp.v_max(), iterate(mdp, Grid.of(mdp, N), DRAWS[draw], SCHEDULES[schedule](t), walk, optimal)

    return jax.vmap(one)(keys)


CASES = [
    ((2, 2, 2), "edge", "power"),
    ((5, 3, 3), "edge", "sqrt_log"),
    ((5, 3, 3), "theory", "power"),
    ((4, 2, 3), "direct", "power"),
    ((4, 2, 3), "top", "sqrt_log"),
    ((3, 3, 2), "worst", "constant"),
]


@pytest.mark.parametrize(
    "sizes, draw, schedule",
    [case if case[1] == "worst" else pytest.param(*case, marks=pytest.mark.long) for case in CASES],
)
def test_the_bounds_on_random_mdps(sizes, draw, schedule):
    """Six settings of 170 MDPs, 1,020 in all, at every iteration, with the measured gaps."""
    keys = jax.random.split(jax.random.key(CASES.index((sizes, draw, schedule))), 170)
    gamma, v_max, path = jax.device_get(trajectories(keys, sizes, draw, schedule))
    slack = 2e-5 * v_max[:, None]  # float32 sums over the grid
    assert (path.losses_low >= -slack).all()
    assert (path.losses_high <= 2 * gamma[:, None] * path.gaps + slack).all()
    worst = 0.0
    for k in range(len(keys)):
        bound = recursive(float(path.errors[k, 0]), path.gaps[k], float(gamma[k]))
        assert (path.errors[k] <= bound + 20 * slack[k]).all()
        worst = max(worst, float((path.losses_high[k] / np.maximum(2 * gamma[k] * path.gaps[k], 1e-3)).max()))
    if draw == "worst":
        assert worst > 0.5, "some MDP comes within twice the bound, so that this test could fail"
    if schedule != "constant":
        assert np.median(path.errors[:, -1] / path.errors[:, 0]) < 0.2, "sizes that vanish let it converge"


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_the_bounds_under_several_laws_of_rewards(law):
    gamma, v_max, path = jax.device_get(
        trajectories(jax.random.split(jax.random.key(9), 100), (3, 3, 2), "worst", "constant", law)
    )
    slack = 2e-5 * v_max[:, None]
    assert (path.losses_low >= -slack).all()
    assert (path.losses_high <= 2 * gamma[:, None] * path.gaps + slack).all()
    for k in range(len(gamma)):
        bound = recursive(float(path.errors[k, 0]), path.gaps[k], float(gamma[k]))
        assert (path.errors[k] <= bound + 20 * slack[k]).all()


@pytest.mark.parametrize("form", ["proof", "statement"])
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_the_theorem_as_written(form, gamma):
    """The double sum term by term, over sizes that are 0 from the ninth on, so that it ends."""
    deltas = np.array([3.0, 1.0, 0.5, 0.4, 0.2, 0.2, 0.1, 0.05])
    padded = np.concatenate([deltas, np.zeros(900)])
    v_max, n = 7.0, 5

    def term(k):
        power = k if form == "proof" else k - 1
        # Delta_j is padded[j - 1]
        return 2 * gamma**power * v_max + 2 * sum(
            gamma**i * (padded[k + 1 - i] + padded[k - i]) for i in range(1, k + 1)
        )

    expected = [sum(term(k) for k in range(first, 400)) for first in range(1, n + 1)]
    np.testing.assert_allclose(theorem(n, deltas, gamma, v_max, form), expected, rtol=1e-6)
    # The same when fewer are given and the others only by their sum: every weight beyond n + 1 is gamma / (1 - gamma).
    np.testing.assert_allclose(theorem(n, deltas[:6], gamma, v_max, form, rest=deltas[6:].sum()), expected, rtol=1e-6)


def test_the_recursive_bound_is_sharper_than_the_theorem():
    """By four orders of magnitude for the default schedule, whose sum is zeta(1.001), about 1,000."""
    deltas = np.arange(1, 101.0) ** -1.001
    rest = scipy.special.zeta(1.001, 101)
    for gamma in (0.5, 0.9):
        v_max = 1 / (1 - gamma)
        sharp = recursive(v_max, deltas[:50], gamma)[1:]
        proof, statement = (theorem(50, deltas, gamma, v_max, form, rest) for form in ("proof", "statement"))
        assert (sharp < proof).all() and (proof < statement)[:30].all(), "later they agree to the last digit"
    perturbed = theorem(50, deltas, 0.9, 0.0, rest=rest)[-1]
    assert perturbed == pytest.approx(3.6e4, rel=0.02) and recursive(0.0, deltas[:50], 0.9)[-1] == pytest.approx(
        0.49, rel=0.02
    )
    assert theorem(50, deltas, 0.9, 10.0, rest=np.inf)[-1] == np.inf
