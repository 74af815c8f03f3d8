"""Searches of a sweep, and its results as tables. Nothing is trained: scores are written as runs write them."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.sweep_makers import Ending, Shape, SweepMaker, cells_of, make_run
from tremble.records import CheckpointError
from tremble.settings import SettingsError
from tremble.sweep_records import Cell, Outcome, as_text
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.optuna_journal import OptunaJournal
from tremble.sweeps.results import log_table, query, run_table, write_parquet
from tremble.sweeps.search import drawn_settings, fixed_trials
from tremble.sweeps.sweep import Search, Sweep
from tremble.training.lock import Claims

SMALL = {"widths": [8], "batch_size": 4, "start_steps": 20}
RATE = {"low": 1e-5, "high": 1e-2, "log": True}
SHORT = Shape(steps=100, evaluations=1, training_episodes=2, final_episodes=3)


def sweep_of(search: Search, **changes) -> Sweep:
    fields = {"agents": ["qrdqn"], "envs": ["CartPole-v1"], "steps": 100, "seeds": 2, "settings": SMALL}
    return Sweep(**fields | changes, search=search)


def written(tmp_path: Path, search: Search, **changes) -> SweepFolder:
    folder = SweepFolder(tmp_path / "sweep")
    folder.write(sweep_of(search, **changes))
    return folder


def train(run: PlannedRun, score: float | None, state: str = "finished") -> None:
    """As if it had been trained."""
    make_run(run.directory, run.cell, run.seed, score, SHORT, np.random.default_rng(0))
    found = Outcome(state, "" if state == "finished" else "why", 100, 1.0, 1.0, "host", "w", {}, None, 1)
    run.outcome_file.write_text(as_text(dataclasses.asdict(found)))


def better_with_small_rates(run: PlannedRun) -> float:
    return -float(np.log10(run.cell.agent_options["learning_rate"]))


def work_off(folder: SweepFolder, score=better_with_small_rates) -> list[PlannedRun]:
    """What a worker does, until nothing is left; the runs in their order."""
    done = []
    for _ in range(200):
        runs, _ = folder.planned(folder.read(), ask=True)
        left = [run for run in runs if run.outcome() is None]
        if not left:
            return done
        train(left[0], score(left[0]))
        done.append(left[0])
    raise AssertionError("the search does not end")


# --- grid and random --------------------------------------------------------------------------------------------------


def test_a_grid_is_every_combination():
    space = {"learning_rate": [1e-3, 1e-2], "n_step": [1, 3, 5]}
    trials = fixed_trials(Search(space, method="grid"), space, Cell("a", "qrdqn"))
    assert len(trials) == 6 and len({tuple(trial.values()) for trial in trials}) == 6
    assert trials[0] == {"learning_rate": 1e-3, "n_step": 1} and trials[-1] == {"learning_rate": 1e-2, "n_step": 5}


def test_random_draws_are_the_same_everywhere_and_prefixes_of_each_other():
    space = {"learning_rate": RATE, "n_step": {"low": 1, "high": 5, "whole": True}, "widths": [[8], [16, 16]]}
    few, many = (fixed_trials(Search(space, trials=n), space, Cell("a", "qrdqn")) for n in (3, 50))
    assert many[:3] == few and len({json.dumps(trial) for trial in many}) == 50
    assert many != fixed_trials(Search(space, trials=50, seed=1), space, Cell("a", "qrdqn"))
    assert many != fixed_trials(Search(space, trials=50), space, Cell("b", "qrdqn"))
    assert {trial["n_step"] for trial in many} == {1, 2, 3, 4, 5}
    assert all(1e-5 <= trial["learning_rate"] <= 1e-2 for trial in many)


def test_draws_are_uniform_or_uniform_in_the_logarithm():
    draws = [drawn_settings({"x": RATE, "y": {"low": 2.0, "high": 4.0}}, (0, k)) for k in range(2000)]
    assert np.mean([draw["x"] < 10**-3.5 for draw in draws]) == pytest.approx(0.5, abs=0.05)
    assert np.mean([draw["y"] for draw in draws]) == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize(
    ("space", "match"),
    [
        ({}, "give a space"),
        ({"n_step": 3}, "a list of values or a range"),
        ({"n_step": []}, "a list of values or a range"),
        ({"n_step": {"low": 3, "high": 1}}, "low < high"),
        ({"n_step": {"low": 0, "high": 1, "log": True}}, "above 0"),
        ({"n_step": {"low": 1, "hihg": 2}}, "high"),
    ],
)
def test_spaces_that_are_none(space, match):
    with pytest.raises(SettingsError, match=match):
        Search(space)


def test_tuning_seeds_are_no_test_seeds():
    with pytest.raises(SettingsError, match="both a tuning seed and a test seed"):
        sweep_of(Search({"n_step": [1, 3]}, seeds=[7, 1]), seeds=2)
    made = sweep_of(Search({"n_step": [1, 3]}, seeds=2), seeds=2)
    assert made.search.all_seeds == (10_000, 10_001) and made.all_seeds == (0, 1)


@pytest.mark.parametrize("method", ["grid", "random", "optuna"])
def test_the_winner_is_trained_on_test_seeds_and_nothing_else_is(tmp_path, method):
    space = {"learning_rate": [1e-4, 1e-3, 1e-2] if method == "grid" else RATE}
    folder = written(tmp_path, Search(space, method=method, trials=5, seeds=2))
    runs = work_off(folder)
    tuning, test = ([run for run in runs if run.phase == phase] for phase in ("tuning", "test"))
    n = 3 if method == "grid" else 5
    assert len(tuning) == 2 * n and {run.seed for run in tuning} == {10_000, 10_001}
    assert [run.seed for run in test] == [0, 1]
    best = min(run.cell.agent_options["learning_rate"] for run in tuning)
    assert {run.cell.agent_options["learning_rate"] for run in test} == {best}
    data = folder.data()
    assert [trial.won for trial in data.trials].count(True) == 1 and len(data.trials) == n
    assert next(trial for trial in data.trials if trial.won).settings == {"learning_rate": best}


def test_a_trial_with_a_failed_run_cannot_win(tmp_path):
    folder = written(tmp_path, Search({"learning_rate": [1e-4, 1e-3]}, method="grid", seeds=1))
    first, second = folder.planned(folder.read())[0]
    train(first, 100.0, "diverged")
    train(second, 1.0)
    trials = folder.data().trials
    assert [(trial.state, trial.won) for trial in trials] == [("failed", False), ("scored", True)]
    assert {run.cell.agent_options["learning_rate"] for run in folder.planned(folder.read())[0][2:]} == {1e-3}


def test_agents_without_the_setting_are_trained_as_they_are(tmp_path):
    search = Search({"n_quantiles": [4, 8]}, method="grid", seeds=1)
    folder = written(tmp_path, search, agents=["qrdqn", "dqn"])
    runs, _ = folder.planned(folder.read())
    assert [(run.cell.agent, run.phase) for run in runs] == [
        *[("qrdqn", "tuning")] * 2,
        *[("dqn", "test")] * 2,
    ]


# --- Optuna -----------------------------------------------------------------------------------------------------------


def search_of(**changes) -> Search:
    return Search(**{"space": {"learning_rate": RATE, "n_step": [1, 3]}, "method": "optuna", "trials": 4} | changes)


def journal_in(folder: Path, search: Search) -> OptunaJournal:
    return OptunaJournal(folder, search, search.space, entropy=5)


def test_a_journal_is_read_as_it_was_written_and_asks_for_the_same(tmp_path):
    search = search_of()
    one, other = (journal_in(tmp_path / name, search) for name in ("one", "other"))
    for journal in (one, other):
        for number in range(3):
            journal.ask()
            journal.tell(number, -float(number))
    assert one.settings() == other.settings() == journal_in(tmp_path / "one", search).settings()
    assert set(one.settings()) == {0, 1, 2} == one.told()
    for settings in one.settings().values():
        assert 1e-5 <= settings["learning_rate"] <= 1e-2 and settings["n_step"] in (1, 3)


def test_a_writer_that_died_in_a_line_or_between_lines_harms_no_trial(tmp_path):
    search = search_of()
    journal = journal_in(tmp_path, search)
    journal.ask()
    journal.ask()
    before = journal.settings()
    path = tmp_path / "journal.log"
    whole = path.read_bytes()
    starts = [0] + [k + 1 for k, byte in enumerate(whole) if byte == ord("\n")]
    for cut in [starts[-1] - 5, *starts[2:-1], starts[-3] + 3]:  # in the last line, between lines, in another
        path.write_bytes(whole[:cut])
        there = journal.settings()
        assert all(before[number] == settings for number, settings in there.items())
        while len(journal.settings()) < 3:
            journal.ask()
        after = journal.settings()
        assert all(after[number] == settings for number, settings in there.items())
        assert path.read_bytes().endswith(b"\n") and len(set(map(str, after.values()))) == len(after)


def test_a_trial_that_was_asked_but_not_told_is_scored_by_whoever_comes_next(tmp_path):
    folder = written(tmp_path, search_of(space={"learning_rate": RATE}, seeds=1, at_once=1))
    first = folder.planned(folder.read(), ask=True)[0]
    assert len(first) == 1
    train(first[0], 1.0)  # its worker dies before Optuna is told
    second = SweepFolder(folder.directory).planned(folder.read(), ask=True)[0]
    assert len(second) == 2 and second[0].name == first[0].name
    found = folder.data().trials
    assert [trial.state for trial in found] == ["scored", "open"] and found[0].score == pytest.approx(1.0)


def test_one_worker_asks_at_a_time(tmp_path):
    folder = written(tmp_path, search_of(at_once=2))
    assert len({run.cell.label for run in folder.planned(folder.read(), ask=True)[0]}) == 2
    place = next(folder.directory.glob("search/*"))
    lock = Claims().take(place)
    for run in folder.planned(folder.read(), ask=True)[0]:
        train(run, 1.0)
    assert len(folder.data().trials) == 2, "somebody else holds the journal"
    lock.release()
    assert len({run.cell.label for run in folder.planned(folder.read(), ask=True)[0]}) == 4


def test_another_space_is_another_search(tmp_path):
    folder = written(tmp_path, search_of(space={"n_step": [1, 3]}, seeds=1, trials=2))
    work_off(folder, lambda run: float(run.cell.agent_options["n_step"]))
    folder.write(sweep_of(search_of(space={"n_step": [5, 7]}, seeds=1, trials=2)))
    runs = work_off(folder, lambda run: float(run.cell.agent_options["n_step"]))
    assert {run.cell.agent_options["n_step"] for run in runs} <= {5, 7}
    assert len(list(folder.directory.glob("search/*/journal.log"))) == 2


@pytest.mark.parametrize(
    "damage", ["garbage\n", "[]\n", '{"op_code": 99}\n', '{"op_code": 4, "trial_id": 0}\n', "\x00\n"]
)
def test_a_damaged_journal_is_an_error_that_names_it(tmp_path, damage):
    journal = journal_in(tmp_path, search_of())
    journal.ask()
    path = tmp_path / "journal.log"
    path.write_text(damage + path.read_text())
    with pytest.raises(CheckpointError, match=r"journal\.log"):
        journal.settings()


def test_a_journal_of_another_space_is_refused(tmp_path):
    journal_in(tmp_path, search_of()).ask()
    with pytest.raises(CheckpointError, match="another space"):
        journal_in(tmp_path, search_of(space={"learning_rate": RATE, "n_step": [1]})).settings()


def test_journals_that_are_links_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("no line end")
    os.symlink(outside, tmp_path / "journal.log")
    journal = journal_in(tmp_path, search_of())
    for attempt in (journal.settings, journal.ask, lambda: journal.tell(0, 1.0)):
        with pytest.raises(CheckpointError, match="link"):
            attempt()
    assert outside.read_text() == "no line end"


# --- tables -----------------------------------------------------------------------------------------------------------


def made(tmp_path: Path, name: str = "made"):
    cells = cells_of(["pqr", "qrdqn"], ["CartPole-v1"], agent_options={"n_step": 3})
    endings = {("pqr | CartPole-v1", 1): Ending("failed", "why"), ("pqr | CartPole-v1", 2): Ending("waiting")}
    return SweepMaker(tmp_path / name, cells, seeds=(0, 1, 2), endings=endings, shape=SHORT).make()


def test_a_row_for_every_run(tmp_path):
    table = run_table([made(tmp_path), made(tmp_path, "other")])
    assert len(table) == 12 and set(table["sweep"]) == {"made", "other"}
    first, failed, waiting = (table.iloc[k] for k in range(3))
    assert first["score"] == pytest.approx(10.0) and first["metric"] == "final" and first["state"] == "finished"
    assert failed["state"] == "failed" and failed["cause"] == "why" and np.isnan(failed["score"])
    assert waiting["state"] == "waiting" and waiting["setting.n_step"] == 3


def test_logs_of_all_runs_in_one_table(tmp_path):
    table = log_table([made(tmp_path)], "episodes")
    assert set(table["agent"]) == {"pqr", "qrdqn"} and "return" in table and len(table) == 2 * 5


def test_sql_over_all_runs(tmp_path):
    sweeps = [made(tmp_path)]
    found = query(sweeps, "SELECT agent, avg(score) AS score, count(*) AS n FROM runs GROUP BY agent ORDER BY agent")
    assert found["n"].tolist() == [3, 3] and found["score"].tolist() == pytest.approx([10.0, 11.0])
    joined = "SELECT r.seed, count(*) n FROM runs r JOIN episodes e USING (directory) GROUP BY r.seed ORDER BY 1"
    assert query(sweeps, joined)["n"].tolist() == [4, 4, 2]
    with pytest.raises(SettingsError, match="cannot be answered"):
        query(sweeps, "SELECT * FROM nowhere")


def test_parquet_holds_the_same(tmp_path):
    import duckdb

    sweeps = [made(tmp_path)]
    paths = write_parquet(sweeps, tmp_path / "out")
    assert {path.stem for path in paths} == {"runs", "metrics", "episodes", "evaluations", "final"}
    found = duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/out/runs.parquet'").fetchall()
    assert found == [(len(run_table(sweeps)),)]


@pytest.mark.parametrize("package", ["duckdb", "optuna", "ray"])
def test_a_missing_package_is_named_with_the_way_to_install_it(tmp_path, monkeypatch, package):
    real = importlib.import_module

    def without(name, *arguments):
        if name == package:
            raise ImportError(f"No module named {name!r}")
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", without)
    extra = {"duckdb": "results", "optuna": "search", "ray": "ray"}[package]
    with pytest.raises(SettingsError, match=rf"{package} cannot be imported .*tremble\[{extra}\]"):
        if package == "duckdb":
            query([made(tmp_path)], "SELECT 1")
        elif package == "optuna":
            journal_in(tmp_path, search_of())
        else:
            from rich.console import Console

            from tremble.sweeps.ray_engine import RayOptions, work_on_ray

            work_on_ray(written(tmp_path, search_of()), RayOptions(), Console(quiet=True))
