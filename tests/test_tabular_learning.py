"""Learning from samples: sampling, updates and planning against NumPy, regret against exact policy values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from tremble.choosers import Chooser
from tremble.core import Clock
from tremble.criteria import Optimism, Perturbed
from tremble.theory import chain, deep_sea, random_mdp
from tremble.theory.episodes import Episode, regret, sampler
from tremble.theory.planners import Counts, Planner
from tremble.theory.quantile_learner import QuantileLearner, Table
from tremble.worlds.deep_sea import DeepSea

CLOCK = Clock(*[jnp.asarray(5)] * 4)
EPISODE = Episode(
    jnp.array([0, 1, 1]),
    jnp.array([1, 0, 0]),
    jnp.array([0.5, 2.0, 9.0]),
    jnp.array([0.9, 0.0, 0.9]),
    jnp.array([1, 2, 1]),
    jnp.array([True, True, False]),
)
"""Two steps and what comes after the end, which must not count."""


def test_samples_have_the_law():
    mdp = random_mdp(jax.random.key(0), 4, 2, 3, terminal=1)
    draw = jax.jit(jax.vmap(lambda key: sampler(mdp)(jnp.asarray(1), jnp.asarray(0), key)))
    reward, following, ended = jax.device_get(draw(jax.random.split(jax.random.key(1), 20_000)))
    law = np.asarray(mdp.law[:, 1, 0])
    for d, value in enumerate(np.asarray(mdp.rewards)):
        for t in range(4):
            share = np.mean((reward == value) & (following == t))
            assert share == pytest.approx(law[d, t], abs=5 * np.sqrt(0.25 / 20_000))
    assert (ended == (following == 3)).all()


class Fixed(Planner):
    """A policy that never learns: action probabilities 0.7 and 0.3 everywhere."""

    def act(self, belief, plan, state, key, clock) -> Array:
        return jax.random.bernoulli(key, 0.3).astype(int)


def test_regret_is_the_difference_of_values():
    """The mean over episodes of a fixed policy, against its value by solving linear equations."""
    mdp = random_mdp(jax.random.key(4), 4, 2, 2, gamma=0.7, terminal=1)
    optimal = mdp.optimal_q(200)
    policy = np.array([0.7, 0.3])
    onward = np.einsum("a,sat->st", policy, np.asarray(mdp.continuation(), float))
    value = np.linalg.solve(np.eye(4) - 0.7 * onward, np.asarray(mdp.expected_reward(), float) @ policy)
    found = jax.jit(lambda key: regret(mdp, optimal, Fixed(sweeps=1), 3000, 25, key))(jax.random.key(0))
    error = float(found.std()) / np.sqrt(3000)
    assert float(found.mean()) == pytest.approx(float(optimal[0].max()) - value[0], abs=5 * error)
    assert error < 0.05


def test_an_episode_is_learned_backwards():
    """By hand in NumPy: the last step first, its news already in the target of the first; nothing after the end."""
    learner = QuantileLearner(rate=0.4, decay=0.5, n_quantiles=4)
    theta = np.random.default_rng(0).normal(size=(3, 2, 4))
    visits = np.array([[0.0, 3.0], [8.0, 0.0], [0.0, 0.0]])
    belief = Table(jnp.asarray(theta, jnp.float32), jnp.asarray(visits, jnp.float32))
    made = learner.learn(belief, EPISODE, jax.random.key(0), CLOCK)
    levels = (np.arange(4) + 0.5) / 4
    for s, a, reward, discount, following in ((1, 0, 2.0, 0.0, 2), (0, 1, 0.5, 0.9, 1)):
        best = theta[following].mean(-1).argmax()
        target = reward + discount * theta[following, best]
        visits[s, a] += 1
        step = 0.4 / np.sqrt(visits[s, a])
        theta[s, a] = [x + step * (t - np.mean(target < x)) for x, t in zip(theta[s, a], levels, strict=True)]
    np.testing.assert_allclose(made.quantiles, theta, atol=1e-6)
    np.testing.assert_allclose(made.visits, visits)


def test_planners_count_and_plan():
    planner = Planner("ucb", scale=0.5, bound=3.0, gamma=0.9, sweeps=40)
    counts = planner.learn(planner.init(3, 2, jax.random.key(0)), EPISODE, jax.random.key(0), CLOCK)
    assert counts.visits.sum() == 2 and counts.moves.sum() == 1 and counts.moves[0, 1, 1] == 1
    np.testing.assert_allclose(counts.rewards[[0, 1], [1, 0]], [0.5, 2.0])
    generator = np.random.default_rng(1)
    moves = generator.integers(0, 5, (3, 2, 3)).astype(np.float32)
    visits, rewards = moves.sum(-1) + 2, generator.normal(size=(3, 2)).astype(np.float32)
    plan = planner.begin(Counts(*map(jnp.asarray, (visits, moves, rewards))), jax.random.key(0), CLOCK)
    q = np.zeros((3, 2))
    for _ in range(40):  # t is 1 + 5
        q = np.minimum((rewards + 0.9 * moves @ q.max(1)) / (visits + 1) + 0.5 * np.sqrt(np.log(7) / (visits + 1)), 3.0)
    np.testing.assert_allclose(plan, q, atol=1e-4)


def test_rlsvi_disturbs_less_what_it_knows():
    planner = Planner("rlsvi", scale=2.0, sweeps=1)
    visits = jnp.array([[0.0, 99.0]])
    belief = Counts(visits, jnp.zeros((1, 2, 1)), jnp.zeros((1, 2)))
    draws = jax.vmap(lambda key: planner.begin(belief, key, CLOCK))(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(np.asarray(draws).std(0)[0], [2.0, 0.2], rtol=0.06)


@pytest.mark.long
def test_planning_finds_the_bottom_of_the_sea_and_dithering_does_not():
    """Size 8: a blind choice finds it once in 256 episodes; what is learned of it once is soon forgotten by chance."""
    mdp = deep_sea(DeepSea(8))
    optimal = mdp.optimal_q(8)
    late = {}
    for name, learner in {
        "ucb": Planner("ucb", 0.3, 1.0, 0.99, 8),
        "dithering": QuantileLearner(chooser=Chooser(0.3, 0.3, 1.0, False), n_quantiles=8, spread=0.0),
    }.items():
        made = jax.jit(jax.vmap(lambda key, learner=learner: regret(mdp, optimal, learner, 300, 8, key)))
        late[name] = float(made(jax.random.split(jax.random.key(1), 4))[:, -30:].mean())
    assert late["ucb"] < 0.1 < 0.6 < late["dithering"]


@pytest.mark.long
@pytest.mark.parametrize("criterion", [Perturbed(n_bins=16), Optimism(draw_law="normal")], ids=["pqr", "p_dltv"])
def test_on_the_chain_regret_falls(criterion):
    mdp = chain()
    learner = QuantileLearner(criterion, rate=5.0, spread=3.0, n_quantiles=16, resample_noise_every=True)
    made = jax.jit(jax.vmap(lambda key: regret(mdp, mdp.optimal_q(200), learner, 300, 20, key)))
    curves = np.asarray(made(jax.random.split(jax.random.key(2), 8)))
    assert (curves >= -1e-4).all() and curves[:, -50:].mean() < 0.4 * curves[:, :20].mean()
