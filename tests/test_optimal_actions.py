"""Environments that cannot tell which actions are optimal: nothing is reported about optimal actions there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tremble
from tremble.core import knows_optimal
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.registry import jax_env_names, make_jax_env
from tremble.records import read_rows
from tremble.training.diagnosis import Diagnosis
from tremble.training.xla_loop import Record

SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}


@pytest.mark.parametrize("name", jax_env_names())
def test_who_knows(name):
    expected = not (name.startswith("minatar/") or name == "risky-grid")
    env = make_jax_env(name, {})
    assert knows_optimal(env) == expected
    answer = env.is_optimal(env.reset(jax.random.key(0)), jnp.asarray(0, jnp.int32))
    assert (answer is not None) == expected


@pytest.mark.parametrize("name, known", [("risky-grid", False), ("minatar/freeway", False), ("nchain", True)])
def test_a_row_of_the_metrics(name, known):
    record = Record(make_jax_env(name, {}))
    zeros = np.zeros(4, np.float32)
    record.add_log({"reward": zeros, "done": zeros.astype(np.int8), "optimal": zeros > 0, "greedy": zeros > 0})
    row = record.add_row(Diagnosis(jnp.zeros((2, 4)), jnp.zeros(2), {}))
    assert row["step"] == 4 and ("optimal_share" in row) == known


@pytest.mark.slow
@pytest.mark.parametrize("name, known", [("risky-grid", False), ("deepsea", True)])
def test_metrics_have_a_share_of_optimal_actions_only_where_there_is_one(name, known, tmp_path):
    run = tremble.train("qrdqn", name, steps=40, record_every=20, out=tmp_path, **SMALL)
    assert ["optimal_share" in row for row in run.rows] == [known] * 2
    assert run.log["optimal"].any() == known
    assert read_rows(tmp_path / "metrics.jsonl", "metrics") == run.rows
    (many,) = tremble.train_many("qrdqn", name, steps=40, seeds=[0], record_every=20, **SMALL)
    assert [row.keys() for row in many.rows] == [row.keys() for row in run.rows]


@pytest.mark.parametrize("name, known", [("risky-grid", False), ("deepsea", True)])
def test_info_says_whether_an_action_was_optimal_only_where_that_is_known(name, known):
    env = JaxGymEnv(make_jax_env(name, {}), 0)
    env.reset()
    *_, info = env.step(1)
    assert list(info) == (["is_optimal"] if known else [])
    assert env.step_log()["optimal"].dtype == np.bool_
