"""Curves of run directories: what is read from the files, also of a run that is killed or still training."""

import csv
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from tremble.cli.main import main
from tremble.report import figures
from tremble.report.run_curves import load_curve
from tremble.report.run_figures import draw
from tremble.report.run_groups import group_runs
from tremble.report.run_report import group_row, report_curves
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
    "evaluate_env": None,
    "parallel": False,
    "record_every": 500,
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


AGENT = {"gamma": 0.99, "criterion.delta_0": 500.0, "criterion.schedule.kind": "linear", "n_step": 1}


def made(tmp_path, name, evaluations, settings=(), behind=AGENT, **spec):
    """A run directory with means of evaluations by step; ``settings`` change some of those behind the names."""
    directory = tmp_path / name
    directory.mkdir(parents=True)
    spec = SPEC | {"env": "CartPole-v1", "env_options": {}, "agent_options": {}, "hyperparameters": None} | spec
    behind = {"agent_settings": behind | dict(settings), "env_settings": spec["env_options"]}
    (directory / "config.json").write_text(json.dumps({"spec": spec, "settings": behind}))
    lines(
        directory / "evaluations.jsonl",
        [
            {"step": step, "mean": mean, "returns": [None if mean is None else mean] * 2, "lengths": [9, 9]}
            for step, mean in evaluations.items()
        ],
    )
    return directory


def grouped(*directories):
    return group_runs([load_curve(directory) for directory in directories])


def test_seeds_become_one_curve_with_students_interval(tmp_path):
    values = np.array([[1.0, 10.0, 40.0], [3.0, 14.0, 50.0], [2.0, 30.0, 60.0]])
    steps = (100, 200, 300)
    runs = [made(tmp_path, f"s{i}", dict(zip(steps, v, strict=True)), seed=i) for i, v in enumerate(values.tolist())]
    (group,) = grouped(*runs)
    assert (group.panel, group.name, len(group.runs)) == ("CartPole-v1", "PQR", 3)
    assert group.band.steps.tolist() == list(steps)
    np.testing.assert_allclose(group.band.mean, values.mean(0))
    low, high = stats.t.interval(0.95, 2, values.mean(0), stats.sem(values, axis=0))  # an independent one
    np.testing.assert_allclose([group.band.low, group.band.high], [low, high])
    assert group_row(group)[2:] == ["3", "evaluations", "300", f"50.0 [{low[-1]:.1f}, {high[-1]:.1f}]"]
    text = report_curves([run for run in group.runs], tmp_path)
    first, second = (text.index(words) for words in ("| PQR | CartPole-v1 | 3 |", "| PQR, seed 0, CartPole-v1 |"))
    assert first < second, "groups first, then single runs"
    with (tmp_path / "means.csv").open() as file:
        assert [row["mean"] for row in csv.DictReader(file)] == ["2", "18", "50"]


def test_unequal_steps_are_interpolated_inside_the_range_that_all_seeds_cover(tmp_path):
    first = made(tmp_path, "a", {100: 0.0, 300: 20.0, 500: 40.0}, seed=0)
    second = made(tmp_path, "b", {200: 10.0, 400: 30.0}, seed=1)  # the same line, seen at other steps
    (group,) = grouped(first, second)
    assert group.band.steps.tolist() == [200, 300, 400] and group.band.mean.tolist() == [10, 20, 30]
    assert group.final()[0] == 400, "no seed is extrapolated"
    third = made(tmp_path, "c", {600: 1.0}, seed=2)  # nothing in common with the second
    (group,) = grouped(first, second, third)
    assert len(group.band.steps) == 0 and group_row(group)[4:] == ["none yet", "none yet"]
    draw([group], tmp_path / "nothing-in-common")


def test_groups_of_one_agent_are_named_by_what_differs(tmp_path):
    runs = [
        made(tmp_path, "default", {1: 1.0}),
        made(tmp_path, "again", {1: 1.0}, agent_options={"delta_0": 500}, seed=4),  # its value without being asked
        made(tmp_path, "small", {1: 1.0}, {"criterion.delta_0": 50.0}, agent_options={"delta_0": 50}),
        made(tmp_path, "baseline", {1: 1.0}, agent="qrdqn", behind={"gamma": 0.99}),
    ]
    groups = grouped(*runs)
    assert [(group.name, len(group.runs)) for group in groups] == [
        ("PQR (delta_0=50)", 1),
        ("PQR (delta_0=500)", 2),
        ("QR-DQN", 1),
    ]
    # Nothing was given by name: another version had another default.
    other = made(tmp_path, "older", {1: 1.0}, {"gamma": 0.9})
    assert [group.name for group in grouped(runs[0], other)] == ["PQR (gamma=0.9)", "PQR (gamma=0.99)"]
    # A table of hyperparameters is named, not the dozen settings it changes.
    table = made(tmp_path, "table", {1: 1.0}, {"gamma": 0.9, "n_step": 3}, hyperparameters="nchain")
    assert [group.name for group in grouped(runs[0], table)] == [
        "PQR (hyperparameters=default)",
        "PQR (hyperparameters=nchain)",
    ]


def test_equal_runs_count_once(tmp_path, capsys):
    short, long = made(tmp_path, "a", {1: 1.0}), made(tmp_path, "b", {1: 1.0, 2: 2.0})
    lines(long / "metrics.jsonl", [{"step": 900, "updates": 0, "episodes": 0}])
    (group,) = grouped(short, long)
    assert [run.steps for run in group.runs] == [900]
    said = "One run has the settings and the seed of another"
    assert said in report_curves([load_curve(short), load_curve(long)], tmp_path)
    assert said not in report_curves([load_curve(long)], tmp_path)
    main(["curves", str(short), str(long), "--out", str(tmp_path / "out")])
    assert said in " ".join(capsys.readouterr().out.split())


def test_protocols_of_atari_and_settings_of_an_environment_have_panels_of_their_own(tmp_path):
    pong = {"env": "atari/Pong", "behind": {"gamma": 0.99}}
    runs = [
        made(tmp_path, "paper", {1: 1.0}, **pong),
        made(tmp_path, "named", {1: 1.0}, **pong, env_options={"protocol": "paper"}, seed=4),
        made(tmp_path, "dopamine", {1: 1.0}, **pong, env_options={"protocol": "dopamine"}),
        made(tmp_path, "grid", {1: 1.0}, env="risky-grid", env_options={"stake": 0.5}),
        made(tmp_path, "wild", {1: 1.0}, env="risky-grid", env_options={"stake": 2.0}),
    ]
    assert [(group.panel, len(group.runs)) for group in grouped(*runs)] == [
        ("atari/Pong (protocol=paper)", 2),
        ("atari/Pong (protocol=dopamine)", 1),
        ("risky-grid (stake=0.5)", 1),
        ("risky-grid (stake=2)", 1),
    ]


def test_what_is_not_finite_is_said_and_not_drawn(tmp_path):
    """A diverged run: its evaluations are null in the file."""
    broken = made(tmp_path, "broken", {100: 1.0, 200: None, 300: None})
    whole = made(tmp_path, "whole", {100: 3.0, 200: 4.0, 300: 5.0}, seed=4)
    never = made(tmp_path, "never", {100: None}, agent="qrdqn")
    text = report_curves([load_curve(run) for run in (broken, whole, never)], tmp_path)
    assert "1.0 at step 100 | not finite |" in text and "| not finite | not finite |" in text
    shown = [text, *((tmp_path / name).read_text() for name in ("evaluations.csv", "means.csv", "curves.svg"))]
    assert not any("nan" in words.lower() for words in shown)


def test_a_seed_that_has_nothing_yet_does_not_count(tmp_path):
    whole, begun = made(tmp_path, "whole", {100: 3.0, 200: 4.0}), made(tmp_path, "begun", {100: None}, seed=4)
    empty = made(tmp_path, "empty", {}, seed=5)
    lines(empty / "evaluations.jsonl", [{"step": 100, "mean": None, "returns": [], "lengths": []}])  # no game ended
    (group,) = grouped(whole, begun, empty)
    assert group_row(group)[2:] == ["1", "evaluations", "200", "4.00 (one seed)"]
    draw([group], tmp_path / "figure")
    assert "nan" not in (tmp_path / "figure.svg").read_text().lower()


@pytest.mark.parametrize("number, text", [(0, "0"), (300, "300"), (5000, "5k"), (12_500, "12.5k"), (-2e6, "-2M")])
def test_numbers_at_the_axes_are_short(number, text):
    assert figures.short_number(number) == text


def panels_of(groups, tmp_path, monkeypatch):
    """The figure, before it is closed."""
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure))
    draw(groups, tmp_path / "figure")
    plt.close(kept[0])
    return kept[0]


def test_many_panels_wrap_and_share_a_legend(tmp_path, monkeypatch):
    runs = [
        made(tmp_path, f"{env}-{agent}-{seed}", {1: 1.0, 2: float(seed)}, env=f"Env{env}-v0", agent=agent, seed=seed)
        for env in range(7)
        for agent in ("pqr", "qrdqn")
        for seed in range(2)
    ]
    figure = panels_of(grouped(*runs), tmp_path, monkeypatch)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == [f"Env{env}-v0" for env in range(7)]
    assert len({axis.get_subplotspec().rowspan.start for axis in shown}) == 3
    assert not any(axis.get_legend() for axis in shown) and len(figure.legends) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["PQR", "QR-DQN"]
    colours = {line.get_color() for axis in shown for line in axis.get_lines() if line.get_linewidth() == 2}
    assert colours == {figures.COLOURS["pqr"], figures.COLOURS["qrdqn"]}, "an agent has its colour everywhere"


def test_the_interval_of_two_seeds_does_not_squash_the_curves(tmp_path, monkeypatch):
    runs = [made(tmp_path, f"{seed}", {1: 0.0, 2: 10.0 * seed}, seed=seed) for seed in (0, 1)]
    figure = panels_of(grouped(*runs), tmp_path, monkeypatch)
    low, high = figure.axes[0].get_ylim()
    assert high - low < 30, "the interval at the end is 127 wide"


def test_hundreds_of_runs_are_drawn(tmp_path, monkeypatch):
    runs = [
        made(tmp_path, f"{i}", {1: 1.0, 2: 2.0}, {"criterion.delta_0": float(i)}, agent_options={"delta_0": i})
        for i in range(100)
    ]
    figure = panels_of(grouped(*runs), tmp_path, monkeypatch)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][-1] == "and 40 more: see the table"
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(looks) == 100, "no two look the same"


def test_what_is_no_run_is_left_out_with_a_note(run, tmp_path, capsys, monkeypatch):
    from tremble.cli.console import console

    monkeypatch.setattr(console, "width", 300)
    empty = tmp_path / "just-started"
    empty.mkdir()
    (empty / "config.json").write_text((run / "config.json").read_text())
    (tmp_path / "curves").mkdir()
    damaged = made(tmp_path, "damaged", {1: 1.0})
    (damaged / "config.json").write_text("{")
    places = [str(place) for place in (tmp_path / "curves", empty, damaged, run)]
    main(["curves", *places, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    assert said.count("left out:") == 3 and "no config.json" in said and "neither evaluations" in said
    assert (tmp_path / "out" / "report.md").exists()
    with pytest.raises(SystemExit) as ending:
        main(["curves", *places[:2], "--out", str(tmp_path / "none")])
    assert ending.value.code == 1 and "not the directory of a run" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
