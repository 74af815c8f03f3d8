"""Settings by name, presets and their layers, and the paper's tables."""

import csv
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import tremble
from tremble.criteria import CRITERIA, Mean
from tremble.hyperparameters import hyperparameter_tables
from tremble.networks import ConvSpec
from tremble.presets import PARTS, PRESETS, make, resolve
from tremble.representations import Categorical, Implicit, Particles
from tremble.settings import SettingsError, describe, override, parse_assignments

REFERENCES = Path(__file__).parents[1] / "references"


@pytest.mark.parametrize("domain", hyperparameter_tables())
@pytest.mark.parametrize("name", PRESETS)
def test_every_shipped_preset_builds_and_predicts(name, domain):
    agent = make(name, domain, widths=[8])
    shape = (36, 36, 4) if isinstance(hyperparameter_tables()[domain].network, ConvSpec) else (5,)

    def first(key):
        return agent.predict(agent.init(key, shape, 6).params, jax.numpy.ones((1, *shape)))[0]

    n_atoms = {"Expected": 1, "Categorical": 51, "Implicit": 32, "FullyParameterised": 32}
    n_atoms |= {"Bootstrapped": 10, "NonDecreasing": 32}
    expected = n_atoms.get(type(agent.representation).__name__, hyperparameter_tables()[domain].n_quantiles)
    assert jax.eval_shape(first, jax.random.key(0)).atoms.shape == (6, expected)
    if domain == "control":  # computed once for each agent, for the time it takes to compile
        np.testing.assert_allclose(jax.jit(first)(jax.random.key(0)).weights.sum(-1), 1.0, rtol=1e-5)


def test_tables_are_the_papers():
    with (REFERENCES / "hyperparameters.csv").open() as file:
        table = {row["name"]: row for row in csv.DictReader(file)}
    renamed = {"epsilon_train_end": "epsilon_end"}
    ours = {"n_step", "optimizer", "epsilon_test", "seeds"}  # the same for all agents, or not an agent's setting
    compared = 0
    for name, row in table.items():
        if name in ours:
            continue
        for domain in ("nchain", "lunarlander", "atari"):
            ours_of_domain = hyperparameter_tables()[domain]
            assert float(row[domain]) == float(getattr(ours_of_domain, renamed.get(name, name))), (name, domain)
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


@pytest.mark.parametrize("name", PRESETS)
def test_the_last_layer_of_a_trace_is_the_value_in_force(name):
    order = ["default", "table", "preset", "published", "yours"]
    protocols = {"atari": [None, "paper", "dqn_zoo", "dopamine"]}
    for table in hyperparameter_tables():
        for protocol in protocols.get(table, [None]):
            agent, trace = resolve(name, table, protocol, {"learning_rate": 3e-4})
            in_force = {path: said[-1].value for path, said in trace.items()}
            assert {path: x for path, x in in_force.items() if path not in PARTS} == describe(agent), (table, protocol)
            assert tuple(path for path in in_force if path in PARTS) == PARTS
            assert trace["optimiser.learning_rate"][-1].layer == "yours"
            for said in trace.values():
                places = [order.index(one.layer) for one in said]
                assert places == sorted(places) and said[0].source


def layers(trace, setting):
    return [(one.layer, one.value) for one in trace[setting]]


def test_a_trace_names_every_layer_in_order():
    _, trace = resolve("rainbow", "atari", "dqn_zoo", {"learning_rate": 1e-3})
    rate = trace["optimiser.learning_rate"]
    assert [(one.layer, one.value) for one in rate] == [
        ("default", 5e-5),
        ("table", 5e-5),
        ("published", 6.25e-5),
        ("yours", 1e-3),
    ]
    assert [one.source for one in rate] == [
        "Adam",
        "atari under dqn_zoo",
        "google-deepmind/dqn_zoo: dqn_zoo/rainbow/run_atari.py",
        "learning_rate=0.001",
    ]
    assert layers(trace, "replay.n_step") == [("default", 1), ("preset", 3), ("published", 3)]


def test_what_follows_from_an_entry_of_the_table_follows():
    _, trace = resolve("pqr", changes={"batch_size": 10, "n_quantiles": 32})
    assert layers(trace, "optimiser.adam_epsilon") == [("default", 1e-8), ("table", 0.01 / 64), ("table", 0.001)]
    assert trace["optimiser.adam_epsilon"][-1].source == "nchain, with batch_size=10"
    assert layers(trace, "criterion.n_bins")[-1] == ("table", 32)
    _, trace = resolve("pqr_iqn", changes={"n_quantiles": 64})
    assert layers(trace, "criterion.n_bins")[-2:] == [("table", 64), ("preset", 32)], "the preset knows better"
    agent = make("qrdqn", "atari", "dqn_zoo")  # published with 201 quantiles
    assert agent.representation.n_quantiles == 201
    assert make("pqr_mmd", n_quantiles=7).representation.n_particles == 7
    assert describe(make("dqn", n_quantiles=7)) == describe(make("dqn")), "accepted where nothing depends on it"
    assert make("quota", epsilon_decay_steps=300).representation.option_epsilon_decay_steps == 3000.0


def test_a_part_in_place_of_the_presets():
    agent, trace = resolve("qrdqn", changes={"criterion": "cvar", "eta": 0.1, "optimiser": "rmsprop"})
    assert layers(trace, "criterion.eta")[-1] == ("yours", 0.1) and "criterion.delta_0" not in trace
    assert trace["optimiser.rms_decay"][-1].source == "optimiser=rmsprop"
    assert type(agent.optimiser).__name__ == "RMSProp"
    _, trace = resolve("qrdqn", changes={"criterion": "pqr"})
    assert layers(trace, "criterion.delta_0") == [("yours", 500.0), ("table", 500.0)]
    with pytest.raises(SettingsError, match="there is no optimiser 'adan'; did you mean 'adam'"):
        make("pqr", optimiser="adan")
    with pytest.raises(SettingsError, match="is no optimiser"):
        make("pqr", optimiser=3)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"detla_0": 1}, "did you mean 'delta_0'"),
        ({"resample_noise_every": "epsiode"}, "did you mean 'episode'"),
        ({"double": 3}, "true or false"),
        ({"start_steps": 2.5}, "whole number"),
        ({"gamma": "high"}, "must be a number"),
        ({"kapa": 1}, "did you mean 'kappa'"),
        ({"batch_size": "many"}, "whole number"),
        ({"batch_size": 0}, "batch_size must be between 1 and 65536, got 0"),
        ({"n_quantiles": "few"}, "whole number"),
        ({"support": [0, 1]}, "there is no setting 'support'"),
    ],
)
def test_wrong_settings_say_what_is_right(changes, message):
    with pytest.raises(ValueError, match=message):  # SettingsError, or the agent's own check
        make("pqr", **changes)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(SettingsError, match="did you mean 'qrdqn'"):
        make("qrdqnn")
    with pytest.raises(SettingsError, match="hyperparameters for 'pong'"):
        make("pqr", "pong")
    for entry in ("delta_0", "beta", "c"):
        with pytest.raises(SettingsError, match=f"there is no setting '{entry}'"):  # the table has it, the agent not
            make("qrdqn", **{entry: 3})


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100000", 100_000),
        ("100_000", 100_000),
        ("1e5", 100_000.0),
        ("1.5E3", 1500.0),
        ("+7", 7),
        (".5", 0.5),
        ("-2.", -2.0),
        ("1_000.5", 1000.5),
        ("1e-4", 1e-4),
        ("_1", "_1"),
        ("1__0", "1__0"),
        ("1e", "1e"),
        ("nan", "nan"),
        ("128,64", [128, 64]),
        ("1_28, 6e1", [128, 60.0]),
        ("a,b", "a,b"),
        ("[[8,3,2]]", [[8, 3, 2]]),
    ],
)
def test_numbers_as_people_type_them(text, value):
    parsed = parse_assignments([f"x={text}"])["x"]
    assert parsed == value and type(parsed) is type(value)


@pytest.mark.parametrize("text", ["1e5", "100_000", "100000", "1.0e5"])
def test_whole_settings_take_them(text):
    assert make("pqr", **parse_assignments([f"memory_size={text}"])).memory_size == 100_000


@pytest.mark.parametrize("text", ["1.5", "1.5,8", "many", "1e400", "[1.5]"])
def test_widths_with_a_fraction_are_not_rounded(text):
    with pytest.raises(SettingsError, match="widths must be"):
        make("pqr", **parse_assignments([f"widths={text}"]))


def test_too_large_whole_numbers_name_the_setting_and_the_value():
    with pytest.raises(SettingsError, match="memory_size must be at most 2147483647, got 1000000000000"):
        make("pqr", **parse_assignments(["memory_size=1e12"]))


LENGTHS = """
from tremble.settings import SettingsError
from tremble.training.spec import RunSpec
spec = RunSpec("pqr", "nchain", 1e5, record_every=5e2)
assert (spec.steps, spec.record_every) == (100_000, 500) and type(spec.steps) is int
for steps in (1.5, "many", None, True):
    try:
        RunSpec("pqr", "nchain", steps)
    except SettingsError as error:
        print(error)
"""


@pytest.mark.slow
def test_lengths_of_runs_may_be_written_as_floats():
    """In a process without type checks, as users run it."""
    result = subprocess.run([sys.executable, "-c", LENGTHS], capture_output=True, text=True, check=True)
    wrong = [f"steps must be a whole number, got {x!r}" for x in (1.5, "many")]
    assert result.stdout.splitlines() == [*wrong, "steps cannot be empty", "steps must be a whole number, got True"]
