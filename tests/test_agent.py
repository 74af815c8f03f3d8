"""Acting: criterion, hold, sharing, clocks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import flat_agent, predict_one

from tremble.choosers import Chooser
from tremble.core import Clock
from tremble.criteria import Mean, Perturbed
from tremble.networks import MlpSpec
from tremble.representations import Quantile
from tremble.schedules import Schedule

N, ACTIONS = 9, 4
LATE = Clock(5000, 4500, 100, 5000, 10)


def agent_with(**changes):
    fields = {
        "representation": Quantile(N),
        "criterion": Perturbed(5.0, n_bins=N, schedule=Schedule("const")),
        "network": MlpSpec((8,)),
        "start_steps": 10,
    }
    return flat_agent(**(fields | changes))


def acting(agent, key=0, clock=LATE, actor=None, obs=None, params=None):
    params = agent.init(jax.random.key(7), (3,), ACTIONS).params if params is None else params
    actor = agent.init_actor(ACTIONS) if actor is None else actor
    obs = jnp.array([0.3, -1.0, 2.0]) if obs is None else obs
    return agent.act(params, actor, obs, None, agent.draw_act(jax.random.key(key), ACTIONS), clock)


@pytest.mark.slow
def test_greedy_action_maximises_the_criterion():
    agent = agent_with()
    params = agent.init(jax.random.key(7), (3,), ACTIONS).params
    obs = jnp.array([0.3, -1.0, 2.0])
    seen = set()
    for key in range(30):
        noise = agent.draw_act(jax.random.key(key), ACTIONS)
        action = agent.act(params, agent.init_actor(ACTIONS), obs, None, noise, LATE)[0]
        scores = agent.criterion.score(predict_one(agent, params, obs), noise.criterion, LATE)
        assert int(action) == int(jnp.argmax(scores))
        seen.add(int(action))
    assert len(seen) > 1, "a perturbation of this size changes its mind"


def test_behaviour_only_and_target_only():
    behaviour, target = agent_with(criterion_for="behaviour"), agent_with(criterion_for="target")
    assert isinstance(behaviour.target_criterion, Mean) and isinstance(behaviour.behaviour_criterion, Perturbed)
    assert isinstance(target.behaviour_criterion, Mean) and isinstance(target.target_criterion, Perturbed)
    assert len({int(acting(target, key)[0]) for key in range(20)}) == 1, "acting by the mean is steady"


def test_uniform_until_learning_starts():
    agent = agent_with(criterion=Mean())
    early = Clock(3, 0, 0, 3, 10)
    assert {int(acting(agent, key, early)[0]) for key in range(60)} == set(range(ACTIONS))
    eager = agent_with(criterion=Mean(), chooser=Chooser(random_start=False))
    assert len({int(acting(eager, key, early)[0]) for key in range(20)}) == 1


def test_hold_for_a_step_draws_every_time():
    agent = agent_with(resample_noise_every="step")
    _, actor, first, _ = acting(agent, 0)
    _, _, second, _ = acting(agent, 1, actor=actor)
    assert not np.allclose(first, second)


def test_hold_for_an_episode_keeps_the_draw_until_the_next_episode():
    agent = agent_with(resample_noise_every="episode")
    _, actor, first, _ = acting(agent, 0)
    assert not bool(actor.episode_start)
    _, actor, second, _ = acting(agent, 1, actor=actor)
    np.testing.assert_array_equal(first, second)
    restarted = eqx.tree_at(lambda a: a.episode_start, actor, jnp.asarray(True))
    _, _, third, _ = acting(agent, 2, actor=restarted)
    assert not np.allclose(first, third)


def test_actions_respect_the_mask():
    agent = agent_with()
    params = agent.init(jax.random.key(0), (3,), ACTIONS).params
    mask = jnp.array([False, True, False, True])
    for key in range(40):
        noise = agent.draw_act(jax.random.key(key), ACTIONS)
        for clock in (LATE, Clock(0, 0, 0, 0, 10)):
            action = agent.act(params, agent.init_actor(ACTIONS), jnp.ones(3), mask, noise, clock)[0]
            assert int(action) in (1, 3)


@pytest.mark.parametrize("start, interval", [(0, 1), (1, 1), (500, 1), (7, 4), (8, 4), (9, 4), (0, 3)])
def test_updates_before_counts_the_steps_that_learn(start, interval):
    agent = agent_with(start_steps=start, update_interval=interval)
    made = 0
    for t in range(40 + start):
        assert int(agent.learning.updates_before(t)) == made, t
        made += bool(agent.learning.learns_at(jnp.asarray(t)))
    assert made > 0
