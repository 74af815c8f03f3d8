"""Known problems as finite MDPs, against closed forms, simulation and value iteration written out."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.toy_text.taxi import TaxiEnv

from tremble.theory import chain, deep_sea, from_gymnasium, risky_grid
from tremble.theory.models import normal_nodes
from tremble.worlds.deep_sea import DeepSea
from tremble.worlds.nchain import NChain
from tremble.worlds.risky_grid import RiskyGrid


def value_iteration(mdp, iterations=400):
    """Q* in float64, by loops over what the MDP says."""
    law, rewards = np.asarray(mdp.law, np.float64), np.asarray(mdp.rewards, np.float64)
    q = np.zeros((mdp.n_states, mdp.n_actions))
    for _ in range(iterations):
        value = np.where(np.asarray(mdp.terminal), 0.0, q.max(1))
        q = np.stack(
            [(law[:, s] * (rewards[:, None, None] + float(mdp.gamma) * value)).sum((0, 2)) for s in range(len(q))]
        )
    return q


@pytest.mark.parametrize("reward_on", ["exit", "enter"])
@pytest.mark.parametrize("length", [5, 9])
def test_the_chain_has_the_returns_of_the_environment(reward_on, length):
    env = NChain(length=length, reward_on=reward_on)
    mdp = chain(env, gamma=0.9)
    assert int(mdp.start) == length // 2
    q = jax.device_get(mdp.optimal_q(500))
    for s in range(length):
        if reward_on == "enter" and s in (0, length - 1):
            continue  # episodes end on arrival there
        for a in range(env.n_actions):
            best = max(env.optimal_return(s, a, 0.9).mean(), 0.0)
            assert float(q[s, a]) == pytest.approx(best, abs=1e-4), (s, a)


def test_rewards_of_the_chain_have_the_right_variance():
    mdp = chain(NChain(reward_noise=0.7))
    paid = mdp.law[:, 4, 0].sum(-1)  # the right end: 1/2 N(5, 0.49) + 1/2 N(13, 0.49)
    mean = paid @ mdp.rewards
    assert float(mean) == pytest.approx(9.0, abs=1e-4)
    assert float(paid @ (mdp.rewards - mean) ** 2) == pytest.approx(16 + 0.49, abs=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_normal_nodes_have_the_moments_of_a_normal(n):
    points, weights = normal_nodes(n)
    moments = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0]
    np.testing.assert_allclose([weights @ points**k for k in range(2 * n)], moments[: 2 * n], atol=1e-9)


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("size", [2, 5, 8])
def test_deep_sea_is_worth_what_the_environment_says(size, stochastic):
    env = DeepSea(size=size, stochastic=stochastic)
    mdp = deep_sea(env, gamma=0.97)
    np.testing.assert_allclose(mdp.law.sum((0, 3)), 1.0, atol=1e-5)
    q = mdp.optimal_q(size)  # episodes last so many steps
    assert float(q[0].max()) == pytest.approx(env.optimal_return(0.97), abs=1e-5)
    wrong = 1 - int(env.right_action[0, 0])
    assert float(q[0, wrong]) <= 1e-6, "left at the start forfeits the reward"


def test_deep_sea_steps_as_the_environment_does():
    env = DeepSea(size=4, stochastic=True)
    mdp = deep_sea(env)
    state = env.reset(jax.random.key(0))
    action = env.right_action[0, 0]
    step = jax.jit(jax.vmap(lambda key: env.index(env.step(state, action, env.draw(key))[0])))
    arrived = step(jax.random.split(jax.random.key(1), 4000))
    share = np.bincount(np.asarray(arrived), minlength=17) / 4000
    np.testing.assert_allclose(share, mdp.law[:, 0, int(action)].sum(0), atol=5 * np.sqrt(0.25 / 4000))


def test_the_risky_grid_tempts():
    """With a gamble that costs, around is better on average, and the gamble has the spread."""
    costly = RiskyGrid(stake=1.0, loss=0.2)
    mdp = risky_grid(costly)
    q = value_iteration(mdp)
    np.testing.assert_allclose(mdp.optimal_q(400), q, atol=1e-4)
    up, right = 0, 1
    into_gamble = mdp.law[:, int(mdp.start), right].sum(-1)
    spread = into_gamble @ (mdp.rewards - into_gamble @ mdp.rewards) ** 2
    assert float(spread) > 0.5, "a stake of 1 with probability 0.9"
    assert q[int(mdp.start)].argmax() == up and q[int(mdp.start), up] - q[int(mdp.start), right] > 0.1
    # By hand without slips and discount: around is 6 steps, 1 - 6 x 0.05. One step right and then around is also 6, and
    # one gamble. From the cell before the goal, straight on is best.
    plain = value_iteration(risky_grid(dataclasses.replace(costly, slip=0.0), gamma=1.0), 50)
    np.testing.assert_allclose(plain[10, [up, right]], [0.7, 0.5], atol=1e-5)
    np.testing.assert_allclose(plain[13, right], 0.95, atol=1e-5)


def test_the_risky_grid_has_the_defaults_of_the_environment():
    env, mdp = RiskyGrid(), risky_grid()
    assert (mdp.n_states, int(mdp.start)) == (env.n_cells + 1, env.start)
    into_gamble = np.asarray(mdp.law[:, env.start, 1].sum(-1))  # right from the start
    paid = {round(float(r), 6): round(float(p), 6) for r, p in zip(mdp.rewards, into_gamble, strict=True) if p > 0}
    mean = -env.step_cost - env.loss
    # Sideways, up goes on without a gamble and down is a wall: together the probability of a slip.
    expected = {mean - env.stake: 0.45, -env.step_cost: 0.1, mean + env.stake: 0.45}
    assert paid == pytest.approx({round(reward, 6): share for reward, share in expected.items()}, abs=1e-6)


def test_taxi_comes_from_its_table():
    table = TaxiEnv().P
    mdp = from_gymnasium(table, gamma=0.9)
    q = np.zeros((len(table), 6))
    entries = [(s, a, *o) for s, row in table.items() for a, outcomes in row.items() for o in outcomes]
    s, a, p, following, reward, done = (np.array(column) for column in zip(*entries, strict=True))
    for _ in range(200):
        new = np.zeros_like(q)
        np.add.at(new, (s, a), p * (reward + 0.9 * ~done * q.max(1)[following]))
        q = new
    np.testing.assert_allclose(mdp.optimal_q(200)[:-1], q, atol=1e-3)


def test_a_table_may_enter_a_state_both_ways():
    """The terminal state is one more: ending on arrival in state 0 pays and stops, arriving otherwise goes on."""
    table = {0: {0: [(0.5, 0, 1.0, True), (0.5, 0, 0.0, False)]}}
    mdp = from_gymnasium(table, gamma=0.5)
    # v = 1/2 + 1/2 * 1/2 v, so v = 2/3.
    assert float(mdp.optimal_q(60)[0, 0]) == pytest.approx(2 / 3, abs=1e-6)
    assert jnp.array_equal(mdp.terminal, jnp.array([False, True]))
