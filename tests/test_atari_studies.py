"""Studies that train on Atari: their runs, what they read off them, and the claims. Runs are files made by hand."""

import csv
import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from study_makers import finish, runs_of

from tremble.atari.games import rom_of
from tremble.records import CheckpointError
from tremble.settings import SettingsError, parse_assignments
from tremble.studies import find_study
from tremble.studies.atari import curves as atari_curves
from tremble.studies.atari import pong_schedules, quota
from tremble.studies.atari import study as atari
from tremble.studies.atari.plan import plan_of
from tremble.studies.atari.training import AtariRun, area
from tremble.studies.kit import Options, collect, run_study
from tremble.sweeps.finished_run import finished_run
from tremble.sweeps.sweep import spec_of

FOUR = (atari.STUDY, atari_curves.STUDY, pong_schedules.STUDY, quota.STUDY)


def options_of(study, tmp_path, *settings, seeds=1, **changes):
    """As the command line makes them."""
    chosen = study.chosen(parse_assignments(settings))
    made = Options(tmp_path / "out", tmp_path / "store", seeds, study.steps, choices=chosen)
    return dataclasses.replace(made, **changes)


def quiet():
    return Console(file=io.StringIO(), width=200)


def fill(study, options, curves, final=(1.0, 3.0)):
    """Runs of the cells in ``curves``: label to one list of evaluation means for each seed."""
    for (label, seed), run in runs_of(study, options).items():
        if seed < len(curves.get(label, ())):
            evaluations = [(run.spec.evaluate_every * (i + 1), mean) for i, mean in enumerate(curves[label][seed])]
            finish(run, evaluations, [(step - 5, mean - 1.0) for step, mean in evaluations], final)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_cells_follow_the_protocol(tmp_path):
    cells = atari.STUDY.cells(
        options_of(atari.STUDY, tmp_path, "games=Pong,ms_pacman", "agents=pqr", "protocol=dopamine")
    )
    assert [cell.label for cell in cells] == ["Pong | pqr", "MsPacman | pqr"]
    spec = spec_of(cells[0], 3, 7)
    assert spec.steps == 2_500_000 and spec.protocol == "dopamine" and spec.env == "atari/Pong" and spec.seed == 3
    assert spec.evaluate_every == 250_000 and spec.evaluate_steps == 125_000
    agent = spec.build_agent()
    assert (
        agent.learning.start_steps == 20_000
        and agent.learning.target_update_interval == 8_000
        and agent.memory_size == 1_000_000
    )


def test_all_49_games_and_the_agents_without_a_memory(tmp_path):
    plan = plan_of(quota.STUDY, options_of(quota.STUDY, tmp_path))
    assert len(plan.games) == 49 and plan.frames == 40_000_000 and plan.steps == 10_000_000
    chosen = options_of(quota.STUDY, tmp_path, "games=pong", "memory_size=200000")
    specs = {cell.agent: spec_of(cell, 0, 1) for cell in quota.STUDY.cells(chosen)}
    assert specs["quota_onpolicy"].n_envs == 16 and specs["quota_onpolicy"].agent_options == {}
    assert specs["quota_onpolicy"].build_agent().fitted_to(16).memory_size == 80
    assert specs["quota"].n_envs == 1 and specs["quota"].build_agent().memory_size == 200_000
    everything = plan_of(atari.STUDY, options_of(atari.STUDY, tmp_path, "games=all"))
    assert len(everything.games) == 55 and "surround" not in everything.games


def test_length_by_frames_or_by_steps(tmp_path):
    assert plan_of(atari.STUDY, options_of(atari.STUDY, tmp_path, "frames=400000")).steps == 100_000
    assert plan_of(atari.STUDY, options_of(atari.STUDY, tmp_path, steps=5_000)).frames == 20_000
    with pytest.raises(SettingsError, match="contradict"):
        plan_of(atari.STUDY, options_of(atari.STUDY, tmp_path, "frames=400000", steps=5_000))
    with pytest.raises(SettingsError, match="at least 4,000 frames"):
        plan_of(atari.STUDY, options_of(atari.STUDY, tmp_path, "frames=100"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("games=pung", "there is no game 'pung'; did you mean 'pong'"),
        ("protocol=papper", "there is no protocol 'papper'; did you mean 'paper'"),
        ("agents=pqrr", "there is no agent 'pqrr'; did you mean 'pqr'"),
        ("protocol=paper,dopamine", "one protocol"),
        ("frame=1", "did you mean 'frames'"),
        ("frames=many", "frames must be a whole number"),
        ("episodes=-1", "at least 0"),
    ],
)
def test_choices_that_do_not_exist(setting, message, tmp_path):
    with pytest.raises(SettingsError, match=message):
        atari.STUDY.cells(options_of(atari.STUDY, tmp_path, setting))


def test_pong_schedules_are_about_pong(tmp_path):
    with pytest.raises(SettingsError, match="no choice 'games'"):
        options_of(pong_schedules.STUDY, tmp_path, "games=breakout")
    assert [cell.env for cell in pong_schedules.STUDY.cells(options_of(pong_schedules.STUDY, tmp_path))] == [
        "atari/Pong"
    ] * 5


@pytest.mark.parametrize("study", FOUR, ids=lambda study: study.name)
def test_quick_looks_are_small(study, tmp_path):
    options = options_of(study, tmp_path, steps=study.quick_steps, quick=True)
    cells = study.cells(options)
    assert len(cells) == 2 and len({cell.env for cell in cells}) == 1
    for cell in cells:
        spec = spec_of(cell, 0, options.steps)
        agent = spec.build_agent()
        assert spec.steps == 2_000 and agent.memory_size == 2_000 and spec.env_options["cap_frames"] == 2_000
    assert find_study(study.name) is study and study.measured and study.metric == "best_evaluation"


def test_studies_share_their_runs(tmp_path):
    def places(study, *settings):
        return {run.directory for run in runs_of(study, options_of(study, tmp_path, *settings)).values()}

    five = places(atari_curves.STUDY, "agents=pqr")
    same = places(
        atari.STUDY, "games=assault,battle_zone,beam_rider,berzerk,bowling", "agents=pqr", "protocol=paper_sticky"
    )
    assert five == same and len(five) == 5
    # By default PQR on Pong is in two of them; other protocols, lengths and memories are other runs.
    pong = places(atari.STUDY, "games=pong", "agents=pqr")
    assert len(pong & places(pong_schedules.STUDY)) == 1
    assert pong == places(quota.STUDY, "games=pong", "agents=pqr", "frames=10000000")
    for other in ("protocol=dqn_zoo", "frames=20000000", "memory_size=100000", "episodes=3"):
        assert not pong & places(atari.STUDY, "games=pong", "agents=pqr", other)


# --- what is read off them --------------------------------------------------------------------------------------------


def test_areas_by_hand():
    assert area(np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 4.0])) == pytest.approx((1.0 + 6.0) / 3)
    assert area(np.array([1.0]), np.array([5.0])) == 5.0


def test_what_is_read_of_a_run(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=bank_heist", "agents=pqr", "frames=3000000", seeds=3)
    run = runs_of(atari.STUDY, options)["BankHeist | pqr", 2]
    finish(run, [(250_000, 10.0), (500_000, 40.0), (750_000, 30.0)], final=[5.0, 7.0])
    read = AtariRun(finished_run(run))
    assert read.seed == 2 and read.frames.tolist() == [1_000_000, 2_000_000, 3_000_000]
    assert (read.best, read.last, read.fresh) == (40.0, 30.0, 6.0) and read.height == pytest.approx((25 + 35) / 2)


# --- reports ----------------------------------------------------------------------------------------------------------

CURVES = {
    "Pong | pqr": [[-20.0, 21.0, 20.0], [-20.0, 19.0, 18.0]],
    "Pong | qrdqn": [[-21.0, -20.0, -19.0], [-21.0, -20.0, -19.0]],
    "Boxing | pqr": [[0.0, 50.0, 100.0], [0.0, 50.0, 90.0]],
    "Boxing | qrdqn": [[0.0, 5.0, 12.1], [0.0, 5.0, 12.1]],
}


@pytest.mark.slow
def test_the_report_on_atari(tmp_path):
    settings = ("games=pong,boxing", "agents=qrdqn,pqr,dltv", "frames=3000000")
    options = options_of(atari.STUDY, tmp_path, *settings, seeds=2, report_only=True)
    fill(atari.STUDY, options, CURVES)
    report = run_study(atari.STUDY, options, quiet()).read_text()
    assert "Protocol `paper`" in report and "**Our runs are 3M frames (750,000 steps of the agent) long**" in report
    assert "published numbers are at 50M, another length, so they cannot be compared directly" in report
    assert "2 of 6 cells have no run yet" in report
    table = [line for line in report.split("## Game by game")[1].splitlines() if line.startswith("| ")]
    lines = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in reversed(table)}
    # Best 21 and 19; fresh games 1 and 3.
    assert "| 20.00 [7.29, 32.71] | 19.00" in lines["Pong", "PQR"] and "| 2.00 [2.00, 2.00] |" in lines["Pong", "PQR"]
    assert "| 0 | – |" in lines["Pong", "DLTV"]
    with (options.out / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 * 3 and rows[0]["protocol"] == "paper" and rows[2]["frame"] == "3000000"
    # The general report of the sweep: scores are best evaluations, agents with all games are summarised.
    assert "## Differences, seed by seed" in report and (options.out / "report.html").exists()
    with (options.out / "scores.csv").open() as file:
        scores = [row for row in csv.DictReader(file) if row["score"]]
    assert len(scores) == 8 and {row["metric"] for row in scores} == {"best_evaluation"}
    assert {float(row["score"]) for row in scores if "Pong" in row["environment"]} == {21.0, 19.0, -19.0}


def test_nothing_trained_is_an_error_and_not_a_report(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=pong", "agents=pqr", report_only=True)
    with pytest.raises(CheckpointError, match="no finished runs"):
        run_study(atari.STUDY, options, quiet())


def test_curves_with_published_ones_behind(tmp_path):
    directory = tmp_path / "published"
    directory.mkdir()
    values = [{"Iteration": i, "Value": 100.0 + i, "Agent": "IQN"} for i in range(4)]
    (directory / "Assault.json").write_text(json.dumps(values))
    (directory / "Pong.json").write_text("not read: no game of the study")
    header = "environment_name,seed,iteration,frame,eval_episode_return,train_episode_return,normalized_return"
    lines = [f"{game},1,{i},{i * 1_000_000},{i},{i or ''},0" for game in ("bowling", "pong") for i in range(2)]
    (directory / "rainbow.csv").write_text("\n".join([header, *lines]))
    settings = ("agents=iqn,pqr", "games=assault,bowling", "frames=2000000", f"published={directory}")
    options = options_of(atari_curves.STUDY, tmp_path, *settings, seeds=3, report_only=True)
    curves = {
        "Assault | pqr": [[5.0, 16.0], [5.0, 17.0], [5.0, 18.0]],
        "Assault | iqn": [[5.0, 10.0], [5.0, 11.0], [5.0, 12.5]],
        "Bowling | pqr": [[1.0, 3.0]],
    }
    fill(atari_curves.STUDY, options, curves)
    report = run_study(atari_curves.STUDY, options, quiet()).read_text()
    found = pd.read_csv(options.out / "published.csv")
    assert set(found["game"]) == {"Assault", "Bowling"} and set(found["source"]) == {"dopamine", "dqn_zoo"}
    assert len(found) == 4 + 2 + 1 and (options.out / "beside_published.svg").exists()
    # Differences of bests: 6, 6, 5.5.
    assert "| PQR − IQN | best | 5.83 [5.12, 6.55]: supported | – |" in report and "`paper_sticky`" in report
    with pytest.raises(SettingsError, match="is not a directory"):
        atari_curves.published_curves(tmp_path / "nowhere", plan_of(atari_curves.STUDY, options))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match="no published curves of Assault, Bowling"):
        atari_curves.published_curves(tmp_path / "empty", plan_of(atari_curves.STUDY, options))


def test_the_ordering_on_pong(tmp_path):
    options = options_of(pong_schedules.STUDY, tmp_path, "frames=8000000", seeds=2, report_only=True)
    rise = [-20.0, -15.0, 0.0, 10.0, 15.0, 20.0]
    curves = {
        "Pong | pqr": [[*rise, 20.5, 21.0], [*rise, 20.7, 21.0]],
        "Pong | pqr_const": [[*rise, 10.0, 9.0], [*rise, 10.1, 9.0]],
        "Pong | pqr_opt": [[-10.0, 0.0, *[15.0] * 6], [-10.1, 0.0, *[15.0] * 6]],
        "Pong | pqr_sqrt_log": [[*rise, 21.0, 21.0], [*rise, 5.0, 21.0]],
        "Pong | pqr_sqrt_log_opt": [[*rise, 20.8, 21.0], [*rise, 20.5, 21.0]],
    }
    fill(pong_schedules.STUDY, options, curves)
    report = run_study(pong_schedules.STUDY, options, quiet()).read_text()
    phases = pd.read_csv(options.out / "phases.csv").set_index(["agent", "seed"])
    # The first third of 8M frames has the evaluations at 1M and 2M, the last quarter those at 7M and 8M.
    assert phases.loc[("pqr", 0), ["early", "late"]].tolist() == [-17.5, 20.75]
    assert phases.loc[("pqr_sqrt_log", 1), ["late", "late_spread"]].tolist() == [13.0, 8.0]
    rows = {line.split("|")[1].strip(): line for line in report.splitlines() if " − " in line}
    assert "supported" in rows["optimism learns quickly in the early stages"]
    assert "supported" in rows["a set of fixed size ends with low performance"]
    assert "inconclusive" in rows["the schedule of p-DLTV degrades performance"]
    assert "3 of 6 orderings are supported at 8,000,000 frames" in report
    assert "PQR reaches it in every seed, but so does √(log t/t) + OPT" in report


def test_the_table_beside_quota(tmp_path):
    settings = ("games=alien,amidar", "frames=1000000")
    options = options_of(quota.STUDY, tmp_path, *settings, report_only=True)
    curves = {
        f"{game} | {agent}": [[100.0 + k]] for game in ("Alien", "Amidar") for k, agent in enumerate(quota.AGENTS)
    }
    fill(quota.STUDY, options, curves)
    report = run_study(quota.STUDY, options, quiet()).read_text()
    assert "160M frames" in report and "**Our runs are 1M frames" in report and "published numbers are at 40M" in report
    table = report.split("## Best scores")[1].split("## Games won")[0]
    (alien,) = (line for line in table.splitlines() if line.startswith("| Alien "))
    cells = [cell.strip() for cell in alien.strip("|").split("|")]
    assert cells[1:6] == [f"{100 + k} (one seed)" for k in range(5)]
    assert cells[6:] == ["1,645.7", "1,760", "1,821.9", "2,280.9", "2,406.9"]
    # Printed: PQR beats DLTV on Alien (2406.9 to 2280.9) and not on Amidar (644.1 to 1042.7); here it is first in both.
    (dltv,) = (line for line in report.splitlines() if line.startswith("| PQR against DLTV"))
    assert "2 won, 0 tied, 0 lost" in dltv and "DLTV: 1 won, 0 tied, 1 lost" in dltv
    assert [rom_of(game) for game in quota.GAMES_49]


@pytest.mark.parametrize("study", FOUR[1:], ids=lambda study: study.name)
def test_reports_of_quick_looks(study, tmp_path):
    """Two evaluations and one seed are enough for a report, and too little for a verdict."""
    options = options_of(study, tmp_path, steps=study.quick_steps, quick=True, report_only=True)
    fill(study, options, {cell.label: [[k, k + 1.0]] for k, cell in enumerate(study.cells(options))})
    report = run_study(study, options, quiet()).read_text()
    assert "is not a result" in report and "8,000 frames (2,000 steps of the agent)" in report
    assert ": supported" not in report and ": contradicted" not in report.replace("contradicted here", "")


@pytest.mark.long
def test_atari_from_end_to_end(tmp_path):
    study, console = atari.STUDY, quiet()
    options = options_of(study, tmp_path, steps=study.quick_steps, quick=True, jobs=2)
    report = run_study(study, options, console).read_text()
    said = console.file.getvalue()
    assert "2 runs to train" in said and "is not a result" in report and "8,000 frames" in report
    for (run,) in collect(study, options).values():
        assert run.run.evaluated_at.tolist() == [1_000, 2_000] and run.run.final.returns.shape == (2,)
        # A point lost is a point lost: between -21 and 21, and no score of clipped frames.
        assert all(-21 <= value <= 21 for value in run.means)
