"""Double, dueling, prioritised and n-step are switches: each alone and in every combination learns a probe."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from probe_answers import answers

import tremble
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import make_jax_env
from tremble.networks import Dueling

SWITCHES = ("double", "dueling", "prioritised", "n_step")
ALL = [dict(zip(SWITCHES, values, strict=True)) for values in itertools.product((False, True), repeat=4)]


def learned(switches: dict[str, bool]) -> tremble.Run:
    options = dict(switches, n_step=3 if switches["n_step"] else 1)
    return tremble.train(
        "qrdqn",
        lambda: JaxGymEnv(make_jax_env("probe-discounting", {})),
        steps=1500,
        hyperparameters="nchain",
        n_quantiles=8,
        widths=[32],
        batch_size=32,
        start_steps=100,
        learning_rate=3e-3,
        adam_epsilon=1e-8,
        gamma=0.8,
        target_update_interval=50,
        epsilon_end=0.5,
        **options,
    )


def check(switches: dict[str, bool]) -> None:
    run = learned(switches)
    assert isinstance(run.agent.params.head, Dueling) == switches["dueling"]
    for answer in answers(make_jax_env("probe-discounting", {}), 0.8):  # 0.8 at the first state, 1 at the second
        value = float(run.agent.distribution(np.asarray(answer.obs)).mean()[answer.action])
        assert abs(value - answer.mean) < 0.05, (switches, answer)


@pytest.mark.long
@pytest.mark.parametrize("switches", [ALL[-1]], ids=["all"])
def test_all_of_them_together_learn(switches):
    check(switches)


@pytest.mark.long
@pytest.mark.parametrize("switches", ALL, ids=lambda s: "+".join(k for k, v in s.items() if v) or "none")
def test_all_sixteen_combinations_learn(switches):
    check(switches)
