"""Curves of run directories: what is read from the files, also of a run that is killed or still training."""

import csv
import json

import pytest

from tremble.cli.main import main
from tremble.report.run_curves import load_curve, report_curves
from tremble.settings import SettingsError, parse_assignments

SPEC = {
    "agent": "pqr",
    "env": "atari/Pong",
    "steps": 800,
    "seed": 3,
    "hyperparameters": "atari_small",
    "agent_options": {"widths": [16, 16], "double": True},
    "env_options": {"protocol": "dopamine"},
    "n_envs": 2,
    "evaluate_every": 200,
    "evaluate_episodes": 2,
    "evaluate_steps": 0,
}


def lines(path, rows, end="\n"):
    path.write_text("\n".join(json.dumps(row) for row in rows) + end)


@pytest.fixture
def run(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"spec": SPEC, "settings": {}}))
    evaluations = [(200, [-21, -19]), (400, [0, 4]), (600, [-3, 1])]
    lines(
        directory / "evaluations.jsonl",
        [{"step": s, "mean": sum(r) / 2, "returns": r, "lengths": [9, 9]} for s, r in evaluations],
    )
    lines(directory / "episodes.jsonl", [{"step": 20 * i, "return": float(i), "length": 20} for i in range(1, 36)])
    lines(directory / "metrics.jsonl", [{"step": s, "updates": 0, "episodes": 0} for s in (500, 700)])
    lines(directory / "timing.jsonl", [{"step": 400, "seconds": 3600.0}, {"step": 700, "seconds": 5400.0}])
    return directory


def test_a_run_is_what_its_files_say(run, tmp_path):
    curve = load_curve(run)
    assert curve.steps == 700 and curve.hours == 1.5 and curve.means.tolist() == [-20, 2, -1]
    assert curve.command == (
        "tremble train pqr --env atari/Pong --steps 800 --seed 3 --hyperparameters atari_small "
        "--set 'widths=[16,16]' --set double=true --env-set protocol=dopamine --n-envs 2 "
        "--evaluate-every 200 --evaluate-episodes 2"
    )
    assert parse_assignments(("widths=[16,16]", "double=true")) == SPEC["agent_options"], "it can be typed again"
    text = report_curves([curve], tmp_path)
    assert "| PQR, seed 3, atari/Pong | 700 (2,800 frames) | 1.5 | 2.0 at step 400 | -1.0 | 25.5 |" in text
    with (tmp_path / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["step"], r["return"]) for r in rows[2:4]] == [("400", "0"), ("400", "4")]
    drawn = (tmp_path / "curves.svg").read_text()
    assert all(word in drawn for word in ("PQR, seed 3", "training", "random", "human", "atari/Pong"))


def test_a_line_that_is_being_written_is_left_out(run):
    lines(
        run / "episodes.jsonl",
        [{"step": 20, "return": 1.0, "length": 3}, {"step": 40, "return": 2.0, "length": 3}],
        end='\n{"step": 6',
    )
    assert load_curve(run).episodes == [(20, 1.0), (40, 2.0)]


def test_runs_of_several_environments_have_panels_of_their_own(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"spec": SPEC | {"env": "CartPole-v1", "env_options": {}}}))
    lines(other / "episodes.jsonl", [{"step": 9, "return": 9.0, "length": 9}])
    text = report_curves([load_curve(run), load_curve(other)], tmp_path)
    assert "| PQR, seed 3, CartPole-v1 | 9 | ? | none | none | 9.0 |" in text
    assert "CartPole-v1" in (tmp_path / "curves.svg").read_text()


@pytest.mark.parametrize("missing", ["config.json", "evaluations.jsonl"])
def test_what_is_no_run_is_said(run, missing):
    (run / missing).unlink()
    (run / "episodes.jsonl").unlink()
    with pytest.raises(SettingsError, match="not the directory of a run" if missing == "config.json" else "neither"):
        load_curve(run)


def test_the_command_writes_figure_data_and_report(run, tmp_path):
    main(["curves", str(run), "--out", str(tmp_path / "out")])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.md", "curves.png", "curves.svg", "evaluations.csv", "episodes.csv"}
