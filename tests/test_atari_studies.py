"""Studies that train on Atari: their runs, what they read off them, and that protocols stay apart. Results are files as
workers write them, with numbers chosen by hand."""

import csv
import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tremble.atari.games import rom_of
from tremble.records import CheckpointError
from tremble.settings import SettingsError, parse_assignments
from tremble.studies import find_study
from tremble.studies.atari import curves as atari_curves
from tremble.studies.atari import pong_schedules, quota
from tremble.studies.atari import study as atari
from tremble.studies.atari.cost import cost_estimate, speed_of
from tremble.studies.atari.plan import plan_of
from tremble.studies.atari.results import area, load_run, published_score, run_scores, tidy, windows
from tremble.studies.atari.tables import even, write_raw
from tremble.studies.kit import Options, collect, run_study, stored
from tremble.training import checkpoint

FOUR = (atari.STUDY, atari_curves.STUDY, pong_schedules.STUDY, quota.STUDY)


def options_of(study, tmp_path, *settings, seeds=1, **changes):
    """As the command line makes them."""
    chosen = study.chosen(parse_assignments(settings))
    made = Options(tmp_path / "out", tmp_path / "store", seeds, study.steps, choices=chosen)
    return dataclasses.replace(made, **changes)


def quiet():
    return Console(file=io.StringIO(), width=200)


def write_result(path, spec, evaluations, episodes, final):
    """A result as `training.worker` leaves it."""
    meta = {
        "spec": spec.as_json(),
        "settings": spec.describe(),
        "rows": [],
        "evaluations": [{"step": step, "mean": mean} for step, mean in evaluations],
        "episodes": [{"step": step, "return": value, "length": 10} for step, value in episodes],
    }
    checkpoint.save(path, {"final": {"returns": np.array(final)}}, meta)


def fill(study, options, curves, final=(1.0, 3.0)):
    """Results of the cells in ``curves``: label to one list of evaluation means for each seed."""
    for cell in study.cells(options):
        for seed, means in enumerate(curves.get(cell.label, ())):
            spec = cell.spec(seed, options.steps)
            evaluations = [(spec.evaluate_every * (i + 1), mean) for i, mean in enumerate(means)]
            episodes = [(step - 5, mean - 1.0) for step, mean in evaluations]
            write_result(stored(options.store, spec), spec, evaluations, episodes, final)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_cells_follow_the_protocol(tmp_path):
    cells = atari.STUDY.cells(
        options_of(atari.STUDY, tmp_path, "games=Pong,ms_pacman", "agents=pqr", "protocol=dopamine")
    )
    assert [cell.label for cell in cells] == ["Pong | pqr", "MsPacman | pqr"]
    spec = cells[0].spec(3, 7)
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
    specs = {cell.agent: cell.spec(0, 1) for cell in quota.STUDY.cells(chosen)}
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
        spec = cell.spec(0, options.steps)
        agent = spec.build_agent()
        assert spec.steps == 2_000 and agent.memory_size == 2_000 and spec.env_options["cap_frames"] == 2_000
    assert find_study(study.name) is study and study.cost_estimate is cost_estimate


def test_studies_share_their_runs(tmp_path):
    def places(study, *settings):
        options = options_of(study, tmp_path, *settings)
        return {stored(options.store, cell.spec(0, options.steps)) for cell in study.cells(options)}

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


def test_windows_and_areas_by_hand():
    episodes = [{"step": s, "return": r} for s, r in ((10, 1.0), (100, 3.0), (101, 7.0), (350, -2.0))]
    # Steps 1 to 100, 101 to 200, none in 201 to 300, and a last window cut by the end of the run.
    assert windows(episodes, 100, 360) == [(100, 2.0), (200, 7.0), (360, -2.0)]
    assert windows([], 100, 360) == []
    assert area(np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 4.0])) == pytest.approx((1.0 + 6.0) / 3)
    assert area(np.array([1.0]), np.array([5.0])) == 5.0


def test_loading_a_result(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=bank_heist", "agents=pqr", "frames=3000000")
    (cell,) = atari.STUDY.cells(options)
    spec = cell.spec(2, options.steps)
    path = stored(options.store, spec)
    write_result(
        path, spec, [(250_000, 10.0), (500_000, 40.0), (750_000, 30.0)], [(9, 4.0), (250_001, 8.0)], [5.0, 7.0]
    )
    run = load_run(path, 2, spec)
    assert (run.game, run.agent, run.protocol, run.seed) == ("BankHeist", "pqr", "paper", 2)
    assert run.trained == [(250_000, 4.0), (500_000, 8.0)] and run.final.tolist() == [5.0, 7.0]
    curves = tidy({cell.label: [run]})
    assert curves[curves["returns"] == "evaluation"]["frame"].tolist() == [1_000_000, 2_000_000, 3_000_000]
    scores = run_scores(curves).set_index("returns")
    assert scores.loc["evaluation", ["best", "best_frame", "last"]].tolist() == [40.0, 2_000_000, 30.0]
    assert scores.loc["evaluation", "area"] == pytest.approx((25 + 35) / 2)
    assert scores.loc["training", "best"] == 8.0
    # The same file is no result of another protocol, or of another game.
    for name, value in (("env_options", {"protocol": "dopamine"}), ("env", "atari/Pong")):
        with pytest.raises(SettingsError, match="do not compare"):
            load_run(path, 2, dataclasses.replace(spec, **{name: value}))


def test_protocols_are_not_mixed(tmp_path):
    results = {}
    for protocol in ("paper", "dqn_zoo"):
        options = options_of(atari.STUDY, tmp_path, "games=pong", "agents=pqr", f"protocol={protocol}")
        fill(atari.STUDY, options, {"Pong | pqr": [[1.0]]})
        results[protocol] = collect(atari.STUDY, options, quiet())["Pong | pqr"]
    with pytest.raises(SettingsError, match="dqn_zoo, paper cannot go into one table"):
        write_raw({"Pong | pqr": results["paper"] + results["dqn_zoo"]}, plan_of(atari.STUDY, options), tmp_path)


def test_published_scores_are_of_the_same_protocol():
    assert published_score("paper", "pqr", "pong") == (21.0, 50_000_000)
    assert published_score("dqn_zoo", "qrdqn", "Pong") == (20.9, 50_000_000)
    # The paper's table has QR-DQN's score, but that is DQN Zoo's.
    assert published_score("paper", "qrdqn", "pong") is None and published_score("dqn_zoo", "pqr", "pong") is None
    assert published_score("paper_sticky", "pqr", "pong") == (19.7, 50_000_000)
    assert published_score("paper_v4", "pqr", "pong") is None
    # Exchanged with DQN's in print.
    assert published_score("dopamine", "iqn", "enduro") == (2268.1, 50_000_000)
    assert published_score("dopamine", "rainbow_dopamine", "pong") == (19.4, 50_000_000)
    assert published_score("dopamine", "rainbow", "pong") is None
    assert published_score("paper", "dltv", "pong") == (21.0, 40_000_000)
    assert published_score("paper", "dltv", "pitfall") is None and published_score("paper", "dltv", "surround") is None


def test_games_with_unequal_seeds_are_made_even():
    rows = [("a", "Pong", s) for s in range(3)] + [("a", "Boxing", s) for s in (0, 1)]
    rows += [("b", "Pong", s) for s in range(3)] + [("b", "Boxing", s) for s in range(3)] + [("a", "Alien", 0)]
    kept = even(pd.DataFrame(rows, columns=["agent", "game", "seed"]))
    assert sorted(kept.itertuples(index=False, name=None)) == [
        (a, g, s) for a in "ab" for g in ("Boxing", "Pong") for s in (0, 1)
    ]


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
    assert "published numbers are at 50M" in report and "cannot be compared directly" in report
    assert "2 of 6 cells have no run yet" in report
    table = [line for line in report.split("### Returns of training")[0].splitlines() if line.startswith("| ")]
    lines = {tuple(cell.strip() for cell in line.split("|")[1:3]): line for line in table}
    # Best 21 and 19, published 21; fresh games 1 and 3.
    assert "| 20.00 [7.29, 32.71] | 19.00" in lines["Pong", "PQR"] and "| 21 at 50M |" in lines["Pong", "PQR"]
    assert "| 2.00 [2.00, 2.00] |" in lines["Pong", "PQR"]
    assert lines["Pong", "QR-DQN"].rstrip().endswith("| – |") and "| 0 |" in lines["Pong", "DLTV"]
    assert "QR-DQN has no published scores under `paper`; there are some under `dqn_zoo`, `dopamine`" in report
    with (options.out / "scores.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["returns"] == "evaluation"]
    assert len(rows) == 8 and rows[0]["protocol"] == "paper"
    names = {p.name for p in options.out.iterdir()}
    assert {
        "curves.png",
        "curves.svg",
        "training.png",
        "training.svg",
        "curves.csv",
        "scores.csv",
        "final.csv",
    } <= names


def test_the_summary_by_hand(tmp_path):
    settings = ("games=pong,boxing", "agents=qrdqn,pqr", "frames=3000000")
    options = options_of(atari.STUDY, tmp_path, *settings, report_only=True)
    fill(atari.STUDY, options, CURVES)
    report = run_study(atari.STUDY, options, quiet()).read_text()
    best = report.split("### Best\n")[1].split("### Last")[0]
    # Pong: random -20.7, human 14.6; Boxing: 0.1 and 12.1. QR-DQN's best: -19 and 12.1.
    pong, boxing = 1.7 / 35.3, 12.0 / 12.0
    assert f"| QR-DQN | {(pong + boxing) / 2:.3f} (one seed) | {1 - (pong + boxing) / 2:.3f} (one seed)" in best
    pqr = (41.7 / 35.3 + 99.9 / 12.0) / 2
    assert f"| PQR | {pqr:.3f} (one seed) | 0.000 (one seed)" in best and "2 games, 1 seed each" in best


def test_nothing_trained_is_an_error_and_not_a_report(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=pong", "agents=pqr", report_only=True)
    with pytest.raises(CheckpointError, match="no finished runs"):
        run_study(atari.STUDY, options, quiet())


def test_curves_of_dopamine_are_training_returns(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=pong", "agents=iqn", "protocol=dopamine", report_only=True)
    fill(atari.STUDY, options, {"Pong | iqn": [[5.0, 9.0]]})
    report = run_study(atari.STUDY, options, quiet()).read_text()
    evaluation, training = report.split("### Returns of training")
    assert "19.9 at 50M" not in evaluation and "19.9 at 50M" in training
    assert "returns of training, at 10,000,000 frames" in report


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
    (alien,) = (line for line in report.splitlines() if line.startswith("| Alien "))
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


# --- estimated cost ---------------------------------------------------------------------------------------------------


def shown(renderable):
    console = quiet()
    console.print(renderable)
    return " ".join(console.file.getvalue().split())


def test_the_cost_estimate_adds_up(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=pong", "agents=qrdqn,pqr", "speed=500", seeds=3, jobs=2)
    specs = [cell.spec(seed, 1) for seed in range(3) for cell in atari.STUDY.cells(options)]
    text = shown(cost_estimate(specs, [], options))
    assert "6 runs to train, 2 at a time, under paper" in text
    # 10M frames at 500 a second are 5.56 hours; six of them two at a time 16.7. An update every 4 of 2.45M steps.
    assert "612,500" in text and "500 │ 5.6" in text and ": 16.7 (0.7 days)" in text and "as given" in text
    assert "memory for replay: 13.5 GiB at a time" in text
    unknown = shown(
        cost_estimate(specs, [], dataclasses.replace(options, choices=options.choices | {"speed": "unknown"}))
    )
    assert "hours: not known; give --set speed=" in unknown
    with pytest.raises(SettingsError, match="speed is a positive number"):
        cost_estimate(specs, [], dataclasses.replace(options, choices=options.choices | {"speed": "fast"}))


def test_speed_of_finished_runs(tmp_path):
    options = options_of(atari.STUDY, tmp_path, "games=pong", "agents=qrdqn,pqr")
    qrdqn, pqr = (cell.spec(0, 1) for cell in atari.STUDY.cells(options))
    options.store.mkdir()
    lines = [
        f"{stored(options.store, spec).relative_to(options.store)},{s}\n" for spec, s in ((qrdqn, 50000), (pqr, 25000))
    ]
    (options.store / "seconds.csv").write_text("".join(lines))
    assert speed_of("pqr", "paper", [qrdqn, pqr], options) == (400.0, "of finished runs")
    # An agent without a finished run is taken to be as fast as the others.
    assert speed_of("dltv", "paper", [qrdqn, pqr], options)[0] == pytest.approx(20_000_000 / 75_000)
    assert speed_of("pqr", "paper", [], options) == (None, "")


@pytest.mark.long
def test_atari_from_end_to_end(tmp_path):
    study, console = atari.STUDY, quiet()
    options = options_of(study, tmp_path, steps=study.quick_steps, quick=True, jobs=2)
    report = run_study(study, options, console).read_text()
    said = console.file.getvalue()
    assert "2 runs to train" in said and "is no result" in report and "8,000 frames" in report
    results = collect(study, dataclasses.replace(options, report_only=True), console)
    for runs in results.values():
        (run,) = runs
        assert [step for step, _ in run.evaluated] == [1_000, 2_000] and run.final.shape == (2,)
        # A point lost is a point lost: between -21 and 21, and no score of clipped frames.
        assert all(-21 <= value <= 21 for _, value in run.evaluated)
    assert not list(options.store.rglob("checkpoints"))
    assert speed_of("pqr", "paper", [cell.spec(0, 1) for cell in study.cells(options)], options)[0]
