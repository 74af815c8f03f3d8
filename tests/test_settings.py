"""Settings by name, presets, and the paper's columns."""

import csv
from pathlib import Path

import jax
import numpy as np
import pytest

import tremble
from tremble.criteria import CRITERIA, Mean
from tremble.hyperparameters import hyperparameter_tables
from tremble.presets import PRESETS, make
from tremble.representations import Categorical, Implicit, Particles
from tremble.settings import SettingsError, describe, override, parse_assignments

REFERENCES = Path(__file__).parents[1] / "references"


@pytest.mark.parametrize("domain", hyperparameter_tables())
@pytest.mark.parametrize("name", PRESETS)
def test_every_shipped_preset_builds_and_predicts(name, domain):
    agent = make(name, domain, widths=[8])
    shape = (5,) if hyperparameter_tables()[domain].network is None else (36, 36, 4)

    def first(key):
        return agent.predict(agent.init(key, shape, 6).params, jax.numpy.ones((1, *shape)))[0]

    n_atoms = {"Expected": 1, "Categorical": 51, "Implicit": 32, "FullyParameterised": 32}
    n_atoms |= {"Bootstrapped": 10, "NonDecreasing": 32}
    expected = n_atoms.get(type(agent.representation).__name__, hyperparameter_tables()[domain].n_quantiles)
    assert jax.eval_shape(first, jax.random.key(0)).atoms.shape == (6, expected)
    if domain == "control":  # computed once for each agent, for the time it takes to compile
        np.testing.assert_allclose(jax.jit(first)(jax.random.key(0)).weights.sum(-1), 1.0, rtol=1e-5)


def test_columns_are_the_papers_table():
    with (REFERENCES / "hyperparameters.csv").open() as file:
        table = {row["name"]: row for row in csv.DictReader(file)}
    renamed = {"epsilon_train_end": "epsilon_end"}
    ours = {"n_step", "optimizer", "epsilon_test", "seeds"}  # the same for all agents, or not an agent's setting
    compared = 0
    for name, row in table.items():
        if name in ours:
            continue
        for domain in ("nchain", "lunarlander", "atari"):
            column = hyperparameter_tables()[domain]
            assert float(row[domain]) == float(getattr(column, renamed.get(name, name))), (name, domain)
            compared += 1
    assert compared == 39


def test_describe_and_override_round_trip():
    agent = make("pqr")
    flat = describe(agent)
    assert flat["criterion.delta_0"] == 500.0 and flat["gamma"] == 0.9 and flat["network.widths"] == [64, 64]
    changed = override(agent, {"delta_0": 7, "criterion.order": "sorted", "widths": [32], "double": True})
    assert changed.criterion.delta_0 == 7.0 and changed.criterion.order == "sorted"
    assert changed.network.widths == (32,) and changed.double is True
    assert describe(agent) == flat, "the original is untouched"
    assert describe(override(agent, flat)) == flat


def test_quantiles_size_head_and_perturbation_together():
    agent = make("pqr", n_quantiles=32)
    assert agent.representation.n_quantiles == 32 and agent.criterion.n_bins == 32
    assert make("pqr", batch_size=10).optimiser.adam_epsilon == 0.001


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"detla_0": 1}, "did you mean 'delta_0'"),
        ({"resample_noise_every": "epsiode"}, "did you mean 'episode'"),
        ({"double": 3}, "true or false"),
        ({"start_steps": 2.5}, "whole number"),
        ({"gamma": "high"}, "must be a number"),
        ({"kapa": 1}, "did you mean 'kappa'"),
    ],
)
def test_wrong_settings_say_what_is_right(changes, message):
    with pytest.raises(SettingsError, match=message):
        make("pqr", **changes)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(SettingsError, match="did you mean 'qrdqn'"):
        make("qrdqnn")
    with pytest.raises(SettingsError, match="hyperparameters for 'pong'"):
        make("pqr", "pong")
    with pytest.raises(SettingsError, match="there is no setting 'delta_0'"):
        make("qrdqn", delta_0=3)


def test_assignments_from_the_command_line():
    parsed = parse_assignments(
        ["delta_0=1e2", "widths=128,64", "double=True", "resample_noise_every=episode", "time_limit=None"]
    )
    assert parsed == {
        "delta_0": 100.0,
        "widths": [128, 64],
        "double": True,
        "resample_noise_every": "episode",
        "time_limit": None,
    }
    with pytest.raises(SettingsError, match="name=value"):
        parse_assignments(["delta_0"])


def test_lists_of_names():
    assert tremble.list_agents() == list(PRESETS)
    assert {"dqn", "c51", "qrdqn", "iqn", "fqf", "mmd", "rainbow", "dltv", "p_dltv", "pqr"} <= set(PRESETS)
    risk = ["cvar", "wang", "cpw", "power", "norm", "var", "distortion", "mean_variance", "utility", "worst_case"]
    heads = ["random_atom", "majority_vote"]
    assert tremble.list_criteria() == ["mean", "dltv", "p_dltv", "pqr", *risk, *heads] == list(CRITERIA)
    assert tremble.list_envs()[:2] == ["nchain", "deepsea"] and "probe-two-point" in tremble.list_envs()
    assert {"nchain-counts", "nchain-readings", "lunarlander"} <= set(tremble.list_studies())


def test_only_criteria_explore_without_epsilon():
    for name in PRESETS:
        agent = make(name)
        explores = not isinstance(agent.criterion, Mean) or agent.noisy or name == "ndqfn"  # which adds a bonus
        assert (agent.chooser.epsilon_start == 1.0) == (not explores), name


def test_a_representation_by_name_class_or_object():
    assert make("qrdqn", representation="implicit", n_choose=8).representation == Implicit(n_choose=8)
    assert make("qrdqn", representation=Particles).representation == Particles()
    assert make("dqn", representation=Categorical(0.0, 1.0)).representation.v_max == 1.0
    assert make("dqn", representation="tremble.representations:Categorical").representation == Categorical()
    with pytest.raises(SettingsError, match="did you mean 'implicit'"):
        make("qrdqn", representation="implicite")
    with pytest.raises(SettingsError, match="is no representation"):
        make("qrdqn", representation="os:abort")  # found, and not called
