"""Policies of trained agents: one `act` for training, evaluation, videos and other libraries."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest
from agent_helpers import flat_agent

from tremble.choosers import Chooser
from tremble.criteria import CVaR, Mean, Perturbed
from tremble.envs.encoding import Actions, Encoder
from tremble.networks import MlpSpec
from tremble.representations import Quantile
from tremble.representations.options import QuantileOptions
from tremble.schedules import Schedule
from tremble.settings import SettingsError
from tremble.training.trained import Counts, TrainedAgent

ACTIONS, OBS = 4, np.array([0.3, -1.0, 2.0], np.float32)


def trained(**changes) -> TrainedAgent:
    fields = {"representation": Quantile(8), "criterion": Mean(), "network": MlpSpec((8,)), "start_steps": 500}
    agent = flat_agent(**(fields | changes))
    params = agent.init(jax.random.key(0), OBS.shape, ACTIONS).params
    counts = Counts(transitions=600, updates=100, episodes=7, frames=2400)
    return TrainedAgent(agent, params, Encoder("box", OBS.shape), Actions.numbered(ACTIONS), counts=counts)


@pytest.mark.slow
def test_schedules_count_from_the_start_of_learning_after_training_too():
    """100 transitions after learning started: epsilon has fallen to 0.9 of a decay over 1,000, not to 0.4."""
    agent = trained(chooser=Chooser(1.0, 0.0, 1000.0, epsilon_origin="learning_start"))
    n = 20_000
    actions, _ = agent.predict(np.stack([OBS] * n), deterministic=False)
    other = (actions != agent.act(OBS)).mean()
    assert other == pytest.approx(0.9 * (1 - 1 / ACTIONS), abs=5 * np.sqrt(0.25 / n))
    delta = Perturbed(500.0, schedule=Schedule("power", 0.0, t_origin="learning_start")).delta(agent.clock)
    assert float(delta) == pytest.approx(500 / 101)


def test_schedules_may_count_frames():
    agent = trained()
    assert float(Schedule("power", 0.0, "frames")(2401.0, agent.clock)) == pytest.approx(1.0)


def test_a_policy_acts_by_its_criterion():
    agent = trained()
    dist = agent.distribution(OBS)
    policy = agent.policy(CVaR(0.25))
    action, _ = policy.act(policy.init_actors(1), OBS[None], None, jax.random.split(jax.random.key(0), 1))
    assert int(action[0]) == int(np.argmax(CVaR(0.25).measure(dist)))
    forbidden = np.ones((1, ACTIONS), bool)
    forbidden[0, int(action[0])] = False
    second, _ = policy.act(policy.init_actors(1), OBS[None], forbidden, jax.random.split(jax.random.key(0), 1))
    assert int(second[0]) != int(action[0])


def test_act_takes_a_criterion_by_name_with_its_settings():
    agent = trained(representation=Quantile(64))
    dist = agent.distribution(OBS)
    lowest, best = (int(np.argmax(scores)) for scores in (CVaR(0.05).measure(dist), dist.mean()))
    assert agent.act(OBS, criterion="cvar", eta=0.05) == agent.act(OBS, criterion=CVaR(0.05)) == lowest
    assert agent.act(OBS) == best == agent.act(OBS, criterion="own")
    mask = np.arange(ACTIONS) != best
    assert agent.act(OBS, mask) == int(np.argmax(np.where(mask, dist.mean(), -np.inf)))
    assert len({agent.act(OBS, criterion="pqr", delta_0=1e9, seed=seed) for seed in range(40)}) > 1
    with pytest.raises(SettingsError, match="there is no setting 'eat'"):
        agent.act(OBS, criterion="cvar", eat=0.1)


def test_options_last_over_the_steps_of_a_policy_that_acts_as_in_training():
    """QUOTA with options that never end: one option per episode, so one action per episode at one observation."""
    options = QuantileOptions(Quantile(8), 4, option_beta=0.0, option_epsilon_start=1.0, option_epsilon_end=1.0)
    policy = trained(representation=options).policy(None, 0.0)
    n, batch = 64, np.stack([OBS] * 64)
    actors, chosen = policy.init_actors(n), []
    for step in range(3):
        _, actors = policy.act(actors, batch, None, jax.random.split(jax.random.key(step), n))
        chosen.append(np.asarray(actors.memory))
    assert len(set(chosen[0].tolist())) == 4
    np.testing.assert_array_equal(chosen[0], chosen[2])
    anew = eqx.tree_at(lambda a: a.episode_start, actors, np.ones(n, bool))
    _, after = policy.act(anew, batch, None, jax.random.split(jax.random.key(9), n))
    assert not np.array_equal(np.asarray(after.memory), chosen[0])
