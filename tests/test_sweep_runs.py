"""Whole sweeps: by command, continued, lengthened, disturbed, and on a cluster of Ray."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests import sweep_fault_cases as cases
from tests.sweep_fault_cases import FAULTY, Setting
from tests.sweep_kit import compare, files_of_sweep, outcomes_of, ray_cluster
from tremble.sweep_records import Cell
from tremble.sweeps.folder import SweepFolder
from tremble.sweeps.sweep import Search, Sweep
from tremble.sweeps.worker import Worker

pytestmark = pytest.mark.slow
SMALL = {"widths": [8], "batch_size": 8, "start_steps": 40}


@pytest.fixture(scope="module")
def setting(tmp_path_factory) -> Setting:
    """A sweep of two runs, worked off by the command."""
    healthy = (("qrdqn", FAULTY, 1), ("pqr", "nchain", 1))
    return Setting(tmp_path_factory.mktemp("sweeps"), steps=600, seeds=1, healthy=healthy, jobs=1)


def same(row: cases.Row) -> None:
    assert row.times > 0 and row.different == []


def test_the_same_command_again_has_nothing_to_do(setting):
    before = files_of_sweep(setting.root / "sweep-1")
    said = setting.finish(setting.root / "sweep-1")
    assert "2 already done, 0 to train" in said and "2 finished" in said
    assert files_of_sweep(setting.root / "sweep-1") == before
    outcomes = outcomes_of(setting.root / "sweep-1")
    assert len(outcomes) == 2 and all(
        each["tries"] == 1 and each["processor_seconds"] > 0 for each in outcomes.values()
    )


def test_workers_that_are_killed_leave_no_trace(setting):
    same(cases.kill_workers(setting, times=1))


def test_a_command_that_is_killed_leaves_workers_that_end_and_a_sweep_that_goes_on(setting):
    killed = (-signal.SIGKILL,)
    same(cases.disturb_driver(setting, "SIGKILL", cases.signalled(signal.SIGKILL), killed, 1))


@pytest.mark.long
def test_a_command_that_is_asked_to_stop_goes_on_when_it_is_repeated(setting):
    same(cases.disturb_driver(setting, "stop", cases.asked_to_stop, (0,), 1))


def test_faults_of_environments_are_outcomes_and_touch_nothing_else(setting):
    rows = cases.faulty_environments(setting, faults=("raise", "hang", "sys_exit"), seeds=1)
    assert len(rows) == 5 and not any(row.different for row in rows)


@pytest.mark.long
def test_a_crash_in_an_environment_is_survived(setting):
    same(cases.faults_that_pass(setting, faults=("crash",), strikes=1))


def test_a_cluster_of_ray_leaves_the_same_files_also_when_a_node_is_gone(setting):
    with ray_cluster(nodes=2) as cluster:
        same(cases.remove_nodes(setting, cluster, 1, "--engine", "ray", "--address", cluster.address))


# --- in this process --------------------------------------------------------------------------------------------------


def sweep_of(**changes) -> Sweep:
    cells = [Cell("a", "qrdqn", FAULTY, SMALL), Cell("b", "pqr", "nchain", SMALL)]
    usual = {"record_every": 100, "evaluate_every": 100, "evaluate_episodes": 1, "final_episodes": 2, "seeds": 1}
    return Sweep(**usual | {"cells": cells, "steps": 200, "checkpoint_every": 100} | changes)


def work_off(directory: Path, sweep: Sweep) -> list[str]:
    """What a worker does; the names of the runs that it trained."""
    folder = SweepFolder(directory)
    folder.write(sweep)
    return [f"{each.cell.label}-{each.seed}" for each, outcome in Worker(folder).work() if outcome.state == "finished"]


def test_a_sweep_that_grows_is_the_sweep_of_that_size(tmp_path):
    assert work_off(tmp_path / "grown", sweep_of()) == ["a-0", "b-0"]
    assert work_off(tmp_path / "grown", sweep_of()) == []
    assert work_off(tmp_path / "grown", sweep_of(seeds=2)) == ["a-1", "b-1"]
    assert work_off(tmp_path / "grown", sweep_of(seeds=2, steps=400)) == ["a-0", "b-0", "a-1", "b-1"]
    assert work_off(tmp_path / "whole", sweep_of(seeds=2, steps=400)) == ["a-0", "b-0", "a-1", "b-1"]
    grown, whole = (without_old_ends(files_of_sweep(tmp_path / name)) for name in ("grown", "whole"))
    found = compare(whole, grown)
    assert found.runs == 4 and found.files > 20 and found.different == []


def without_old_ends(files: dict[str, bytes]) -> dict[str, bytes]:
    """Evaluations after training at the last step only: a run that was lengthened keeps the older ones.

    Its checkpoint counts their bytes.
    """
    kept = {}
    for name, content in files.items():
        if name.endswith("final.jsonl"):
            rows = [json.loads(line) for line in content.splitlines()]
            content = json.dumps([row for row in rows if row["step"] == rows[-1]["step"]]).encode()
        if "checkpoints/" not in name:
            kept[name] = content
    return kept


@pytest.mark.parametrize("method", ["random", "optuna"])
def test_a_search_trains_its_winner_on_test_seeds(tmp_path, method):
    space = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
    search = Search(space, method=method, trials=2, seeds=1, steps=100, at_once=1)
    sweep = sweep_of(cells=[Cell("b", "pqr", "nchain", SMALL)], search=search)
    work_off(tmp_path / "one", sweep)
    work_off(tmp_path / "two", sweep)
    data = SweepFolder(tmp_path / "one").data()
    assert [(each.phase, each.seed, each.state) for each in data.runs] == [
        ("test", 0, "finished"),
        ("tuning", 10_000, "finished"),
        ("tuning", 10_000, "finished"),
    ]
    assert files_of_sweep(tmp_path / "one") == files_of_sweep(tmp_path / "two"), "a search is reproducible"
