"""Loaders of published curves: exactly their formats, and what they say to files that are not."""

import json

import pandas as pd
import pytest

from tremble.report.curve_figures import draw_curves
from tremble.report.curves import COLUMNS, load_dopamine, load_dqn_zoo, load_run
from tremble.settings import SettingsError
from tremble.training.spec import RunSpec


def dopamine(tmp_path, runs, name="pong.json"):
    """Dopamine's layout: one object after another, runs in order, one space of indentation."""
    entries = [
        {"Iteration": i, "Value": value, "Agent": agent} for agent, values in runs for i, value in enumerate(values)
    ]
    path = tmp_path / name
    path.write_text(json.dumps(entries, indent=1))
    return path


RUNS = [
    ("DQN", [-20.3, -19.3, -17.9]),
    ("DQN", [-20.3, -19.2, -13.2]),
    ("Quantile (JAX)", [-20.0, 5.0, 3.0]),
    ("Quantile (JAX)", [-20.5, 1.0, 9.0]),
]


def test_dopamine_finds_the_runs_and_labels_them(tmp_path):
    curves = load_dopamine(dopamine(tmp_path, RUNS))
    assert tuple(curves.columns) == COLUMNS and len(curves) == 12
    assert set(curves["returns"]) == {"training"} and set(curves["protocol"]) == {"dopamine"}
    assert set(curves["game"]) == {"Pong"} and set(curves["agent"]) == {"dqn", "qrdqn"}
    second = curves[(curves["agent"] == "dqn") & (curves["seed"] == 1)]
    assert second["value"].tolist() == [-20.3, -19.2, -13.2]
    # An iteration is complete after its million frames.
    assert second["frame"].tolist() == [1_000_000, 2_000_000, 3_000_000]


def test_dopamine_runs_of_one_iteration_and_interleaved_agents(tmp_path):
    curves = load_dopamine(dopamine(tmp_path, [("DQN", [1.0]), ("IQN", [2.0]), ("DQN", [3.0]), ("My Own", [4.0])]))
    assert list(zip(curves["agent"], curves["seed"], curves["value"], strict=True)) == [
        ("dqn", 0, 1.0),
        ("iqn", 0, 2.0),
        ("dqn", 1, 3.0),
        ("My Own", 0, 4.0),
    ]


@pytest.mark.parametrize("name", ["bankheist.json", "bankheist_CNN.json", "bankheist_Impala.json"])
def test_dopamine_games_by_file_name(tmp_path, name):
    assert set(load_dopamine(dopamine(tmp_path, RUNS, name))["game"]) == {"BankHeist"}


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not JSON"),
        ("[1, 2", "not JSON"),
        ("{}", "should be a list"),
        ("[]", "should be a list"),
        ("[3]", "entry 0: expected an Iteration"),
        ('[{"Iteration": 0, "Value": 1.0}]', "expected an Iteration, a Value and an Agent"),
        ('[{"Iteration": "0", "Value": 1.0, "Agent": "DQN"}]', "whole number"),
        ('[{"Iteration": true, "Value": 1.0, "Agent": "DQN"}]', "whole number"),
        ('[{"Iteration": 0, "Value": "1", "Agent": "DQN"}]', "should be a number"),
        ('[{"Iteration": 0, "Value": NaN, "Agent": "DQN"}]', "should be a number"),
        ('[{"Iteration": 0, "Value": 1e999, "Agent": "DQN"}]', "should be a number"),
        ('[{"Iteration": 0, "Value": 1.0, "Agent": ""}]', "should be a name"),
        ('[{"Iteration": 3, "Value": 1.0, "Agent": "DQN"}]', "starts at iteration 3"),
        ('[{"Iteration": 0, "Value": 1, "Agent": "DQN"}, {"Iteration": 2, "Value": 1, "Agent": "DQN"}]', "2 follows 0"),
    ],
)
def test_dopamine_refuses_other_files(tmp_path, text, message):
    path = tmp_path / "pong.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_dopamine(path)


def test_binary_files_are_refused(tmp_path):
    for name, load in (("pong.json", load_dopamine), ("qrdqn.csv", load_dqn_zoo)):
        path = tmp_path / name
        path.write_bytes(b"\xff\xfe\x00\x80" * 10)
        with pytest.raises(SettingsError, match="is not"):
            load(path)


HEADER = "environment_name,seed,iteration,frame,eval_episode_return,train_episode_return,normalized_return"


def zoo(tmp_path, *lines, header=HEADER):
    path = tmp_path / "qrdqn.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_dqn_zoo_has_evaluation_and_training(tmp_path):
    path = zoo(
        tmp_path,
        "pong,1,0,0,-21.0,nan,-0.008",
        "pong,1,1,1000000,-20.5,-20.4,0.006",
        "bank_heist,1,0,0,14.0,,0.0",
        "bank_heist,1,1,1000000,20.0,18.5,0.008",
    )
    curves = load_dqn_zoo(path)
    assert set(curves["agent"]) == {"qrdqn"} and set(curves["protocol"]) == {"dqn_zoo"}
    assert set(curves["game"]) == {"Pong", "BankHeist"}
    evaluation, training = (curves[curves["returns"] == kind] for kind in ("evaluation", "training"))
    # Iteration 0 was never trained, so it has no training return.
    assert evaluation["value"].tolist() == [-21.0, -20.5, 14.0, 20.0] and training["value"].tolist() == [-20.4, 18.5]


@pytest.mark.parametrize(
    "lines, message",
    [
        ([], "has no results"),
        (["pong,1,one,0,-21.0,nan,0"], "line 2"),
        (["pong,1,1,4000000,-21.0,nan,0"], "should end at frame"),
        (["chess,1,0,0,-21.0,nan,0"], "no human score"),
        (["pong,1,0,0,nan,nan,0"], "evaluation return is not a number"),
        (["pong,1,0,0,-21,nan,0", "pong,1,0,0,-21,nan,0"], "twice"),
        (["pong,1,0"], "line 2"),
        (["pong,1,0,inf,-21,nan,0"], "line 2"),
    ],
)
def test_dqn_zoo_refuses_broken_lines(tmp_path, lines, message):
    with pytest.raises(SettingsError, match=message):
        load_dqn_zoo(zoo(tmp_path, *lines))


def test_dqn_zoo_refuses_other_tables(tmp_path):
    with pytest.raises(SettingsError, match="lacks environment_name"):
        load_dqn_zoo(zoo(tmp_path, "1,2", header="a,b"))


def test_a_run_of_ones_own_joins_them(tmp_path):
    spec = RunSpec("pqr", "PongNoFrameskip-v4", 500_000, seed=3).as_json()
    (tmp_path / "config.json").write_text(json.dumps({"spec": spec}))
    means = {250_000: -19.0, 500_000: -3.5}
    rows = [{"step": step, "mean": mean, "returns": [mean], "lengths": [9]} for step, mean in means.items()]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ours = load_run(tmp_path, protocol="paper")
    assert ours["frame"].tolist() == [1_000_000, 2_000_000] and ours["game"].unique().tolist() == ["Pong"]
    theirs = load_dopamine(dopamine(tmp_path, RUNS))
    together = pd.concat([theirs, ours])
    assert tuple(together.columns) == COLUMNS
    with pytest.raises(SettingsError, match="not the directory of a run"):
        load_run(tmp_path / "nothing", protocol="paper")
    with pytest.raises(SettingsError, match="under which protocol"):
        load_run(tmp_path)
    spec |= {"env": "atari/MsPacman", "env_options": {"protocol": "dopamine"}}
    (tmp_path / "config.json").write_text(json.dumps({"spec": spec}))
    own = load_run(tmp_path)
    (tmp_path / "evaluations.jsonl").unlink()
    with pytest.raises(SettingsError, match="no evaluations"):
        load_run(tmp_path)
    assert own["protocol"].unique().tolist() == ["dopamine"] and own["game"].unique().tolist() == ["MsPacman"]


def test_curves_are_drawn_with_what_they_are(tmp_path):
    path = zoo(
        tmp_path, *(f"pong,{seed},{i},{i}000000,{i - 21 + seed}.0,{i - 21}.0,0.0" for seed in (1, 2) for i in range(5))
    )
    together = pd.concat([load_dqn_zoo(path), load_dopamine(dopamine(tmp_path, RUNS))])
    draw_curves(together, tmp_path / "curves")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    text = (tmp_path / "curves.svg").read_text()
    for label in ("qrdqn: evaluation, dqn_zoo", "qrdqn: training, dqn_zoo", "dqn: training, dopamine"):
        assert label in text
    with pytest.raises(SettingsError, match="no curves"):
        draw_curves(together.iloc[:0], tmp_path / "none")
