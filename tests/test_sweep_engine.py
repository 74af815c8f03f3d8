"""Sweeps: what a directory asks for, who may take up what, and how engines treat their workers. Nothing is trained."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tremble
from tests.sweep_claims import race
from tremble.criteria import Mean
from tremble.records import CheckpointError, WriteError
from tremble.settings import SettingsError
from tremble.sweep_records import Cell, Outcome, as_text, read_outcome
from tremble.sweeps import claimed_run, local
from tremble.sweeps.check import check
from tremble.sweeps.claimed_run import MOST_DEATHS, Pulse, Tries, train_claimed
from tremble.sweeps.folder import PlannedRun, SweepFolder, as_json, as_sweep
from tremble.sweeps.local import LocalEngine, LocalOptions, SweepError, worker_environment
from tremble.sweeps.search_plan import written_out
from tremble.sweeps.sweep import Sweep, folder_name, spec_of
from tremble.sweeps.sweep_file import read_sweep
from tremble.sweeps.upkeep import collect_garbage, retry
from tremble.sweeps.worker import CANNOT_GO_ON, Worker, parse_shard
from tremble.training.lock import Claims

SMALL = {"widths": [8], "batch_size": 4, "start_steps": 20}


def small_sweep(**changes) -> Sweep:
    fields = {"agents": ["qrdqn"], "envs": ["CartPole-v1", "nchain"], "steps": 100, "seeds": 2, "settings": SMALL}
    return Sweep(**fields | changes)


def outcome(state="finished", step=100, cause="") -> Outcome:
    return Outcome(state, cause, step, 1.0, 1.0, "host", "host-1", {"tremble": "0"}, None, 1)


def end(run: PlannedRun, state="finished", step=100, cause="") -> None:
    """As if it had been trained."""
    run.directory.mkdir(parents=True, exist_ok=True)
    run.outcome_file.write_text(as_text(dataclasses.asdict(outcome(state, step, cause))))


def written(tmp_path: Path, **changes) -> SweepFolder:
    folder = SweepFolder(tmp_path / "sweep")
    folder.write(small_sweep(**changes))
    return folder


def runs_of(folder: SweepFolder) -> list[PlannedRun]:
    return folder.planned(folder.read())[0]


def left(folder: SweepFolder) -> list[PlannedRun]:
    """What a worker would train."""
    return [run for run in Worker(folder).left() if run.outcome() is None]


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_claimed_directory_is_nobody_elses_until_it_is_released(tmp_path):
    mine = Claims(lease=1.5).take(tmp_path)
    assert mine is not None
    others = Claims(lease=1.5)
    assert others.take(tmp_path) is None and others.alive(tmp_path) is None
    while others.alive(tmp_path) is None:  # its owner raises a counter
        assert others.take(tmp_path) is None
    assert f"process {os.getpid()} on" in others.alive(tmp_path)
    mine.release()
    theirs = others.take(tmp_path)
    assert theirs is not None
    theirs.release()


def left_behind(directory: Path, **fields) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    owner = {"id": "0" * 32, "machine": "elsewhere/0/1", "pid": 1, "count": 3, "doing": "training", "step": 5}
    (directory / "lock-4.json").write_text(json.dumps(owner | fields).ljust(511) + "\n")


def test_what_a_machine_left_behind_is_taken_after_the_lease(tmp_path):
    left_behind(tmp_path)
    claims, begin = Claims(lease=0.3), time.monotonic()
    while (lock := claims.take(tmp_path)) is None:
        time.sleep(0.01)
    assert time.monotonic() - begin > 0.3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock-5.json"]
    lock.release()


def test_the_same_job_is_taken_over_at_once_and_no_other(tmp_path):
    left_behind(tmp_path, job="ray 1 cell/seed-0")
    assert Claims(lease=60, job="ray 1 cell/seed-1").take(tmp_path) is None
    assert Claims(lease=60).take(tmp_path) is None
    lock = Claims(lease=60, job="ray 1 cell/seed-0").take(tmp_path)
    assert lock is not None
    lock.release()


def test_a_lock_that_could_not_be_written_keeps_nobody_away(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(WriteError, match="No space left"):
        patched.setattr(os, "pwrite", full)
        Claims(lease=60).take(tmp_path)
    lock = Claims(lease=60).take(tmp_path)
    assert lock is not None
    lock.release()


@pytest.mark.slow
def test_no_directory_is_held_by_two(tmp_path):
    found = race(tmp_path, claims=2_000, processes=8, directories=16)
    assert found["taken"] == 2_000 and found["twice"] == 0


# --- tries ------------------------------------------------------------------------------------------------------------


def test_deaths_are_counted_at_one_step_and_in_a_row(tmp_path):
    run = runs_of(written(tmp_path))[0]
    run.directory.mkdir(parents=True)
    for number in range(3):
        tries = Tries(run)
        assert (tries.count, tries.deaths) == (number, number)
        tries.begin("host-1")
    tries.end()
    assert (Tries(run).count, Tries(run).deaths) == (3, 0)
    Tries(run).begin("host-2")
    assert Tries(run).deaths == 1
    (run.directory / "checkpoints").mkdir()
    (run.directory / "checkpoints" / "step-0000000050.safetensors").touch()
    assert (Tries(run).deaths, Tries(run).step) == (0, 50)


def test_half_a_line_of_tries_harms_no_other(tmp_path):
    run = runs_of(written(tmp_path))[0]
    run.directory.mkdir(parents=True)
    path = run.directory.with_name("seed-0.tries.jsonl")
    path.write_text('{"worker": "a", "step": 0}\n{"worker": "b", "st')
    Tries(run).begin("c")
    assert Tries(run).count == 2 and path.read_text().splitlines()[-1].startswith('{"worker": "c"')


def test_a_run_whose_workers_die_silently_has_failed(tmp_path):
    folder = written(tmp_path)
    run = runs_of(folder)[0]
    run.directory.mkdir(parents=True)
    for _ in range(MOST_DEATHS):
        Tries(run).begin("host-1")
    lock = Claims().take(run.directory)
    found = train_claimed(run, folder.read(), lock, "host-2", lambda: False)
    lock.release()
    assert found == run.outcome() and found.state == "failed" and "died 8 times in a row at step 0" in found.cause
    assert retry(folder, ["failed"]) == 1 and Tries(run).deaths == 0


def test_a_worker_that_lost_its_run_writes_no_outcome(tmp_path):
    folder = written(tmp_path)
    run = runs_of(folder)[0]
    worker = Worker(folder)
    lock = Claims(lease=60).take(run.directory)
    left_behind(run.directory)  # a higher number
    with pytest.raises(tremble.training.lock.LockedError, match="no longer owns"):
        claimed_run._write(run, lock, outcome())
    lock.release()
    assert not run.outcome_file.exists() and worker.take(run) is None


# --- outcomes ---------------------------------------------------------------------------------------------------------


def test_an_outcome_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "seed-0.json"
    assert read_outcome(path) is None
    for state in ("finished", "stopped", "failed", "diverged", "timed out"):
        path.write_text(as_text(dataclasses.asdict(outcome(state))))
        assert read_outcome(path) == outcome(state)


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "{}", '{"state": "finished"}', as_text(dataclasses.asdict(outcome("waiting")))]
)
def test_what_is_no_outcome_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "seed-0.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=r"seed-0\.json"):
        read_outcome(path)


def test_a_result_of_fewer_steps_is_none_and_a_stopped_one_is(tmp_path):
    run = runs_of(written(tmp_path))[0]
    for state, step, counts in (("finished", 99, False), ("finished", 100, True), ("stopped", 7, True)):
        end(run, state, step)
        assert (run.outcome() is not None) is counts
    end(run, "failed", 7)
    assert run.outcome() is not None and not run.outcome().counts


# --- plans ------------------------------------------------------------------------------------------------------------


def test_folders_are_named_for_everything_but_length_and_seed():
    cell = Cell("any", "qrdqn", "CartPole-v1", {"widths": [8]})
    name = folder_name(spec_of(cell, 0, 100))
    assert name == "qrdqn-widths=-8-CartPole-v1-229603f1"  # directories of sweeps that exist depend on it
    assert {folder_name(spec_of(cell, seed, steps)) for seed in (0, 7) for steps in (1, 10**6)} == {name}
    others = [
        {"agent_options": {"widths": [9]}},
        {"env_options": {"gravity": 1.0}},
        {"run_options": {"n_envs": 2}},
        {"hyperparameters": "nchain"},
        {"env": "Acrobot-v1"},
        {"agent": "pqr"},
    ]
    names = [folder_name(spec_of(dataclasses.replace(cell, **change), 0, 100)) for change in others]
    names += [name, folder_name(spec_of(cell, 0, 100), "module:function")]
    assert len(set(names)) == len(names)


def test_a_plan_names_the_same_folders_as_the_sweep_it_was_made_of(tmp_path):
    made = small_sweep(agents=["qrdqn", "pqr"], settings={"widths": (8, 8), "criterion": Mean}, grid={"n_step": [1, 3]})
    folder = SweepFolder(tmp_path)
    folder.write(made)
    assert [run.name for run in folder.planned(made)[0]] == [run.name for run in runs_of(folder)]
    assert [cell.label for cell in folder.read().all_cells()] == [cell.label for cell in made.all_cells()]
    assert as_json(written_out(folder.read())) == as_json(folder.read())


def test_reading_a_plan_makes_no_agent(tmp_path, monkeypatch):
    folder = written(tmp_path, search=tremble.Search({"learning_rate": [1e-3, 1e-2]}, method="grid"))
    before = [run.name for run in runs_of(folder)]
    monkeypatch.setattr(tremble.training.spec, "make", None)
    assert [run.name for run in runs_of(SweepFolder(folder.directory))] == before


def test_every_cell_has_its_first_seed_before_any_has_its_second(tmp_path):
    folder = written(tmp_path, seeds=[5, 3, 4])
    order = [(run.spec.seed, run.cell.env) for run in runs_of(folder)]
    assert order == [(seed, env) for seed in (5, 3, 4) for env in ("CartPole-v1", "nchain")]


def test_only_what_is_missing_is_left(tmp_path):
    folder = written(tmp_path)
    for run in runs_of(folder):
        end(run)
    assert left(folder) == []
    folder.write(small_sweep(seeds=3))
    assert [run.spec.seed for run in left(folder)] == [2, 2]
    folder.write(small_sweep(agents=["qrdqn", "pqr"]))
    assert [run.cell.agent for run in left(folder)] == ["pqr"] * 4
    folder.write(small_sweep(steps=200))
    assert [run.name for run in left(folder)] == [run.name for run in runs_of(folder)]
    folder.write(small_sweep(envs=["nchain"]))
    assert left(folder) == [] and len(list(folder.runs_directory.glob("*/*.json"))) == 4


def test_a_shard_begins_with_its_own_runs(tmp_path):
    folder = written(tmp_path, seeds=3)
    names = [run.name for run in runs_of(folder)]
    mine = [run.name for run in Worker(folder, shard=(1, 3)).left()]
    assert mine[:2] == names[1::3] and sorted(mine) == sorted(names)
    assert parse_shard("3/16") == (2, 16)
    for wrong in ("0/4", "5/4", "1", "a/b", "1/0", "/", "-1/4"):
        with pytest.raises(ValueError, match="no shard"):
            parse_shard(wrong)


def test_runs_of_more_steps_are_refused(tmp_path):
    folder = written(tmp_path)
    last = runs_of(folder)[-1]  # of the second seed
    end(last)
    with pytest.raises(SettingsError, match="nchain is there with 100 steps, and 50 are asked for"):
        check(small_sweep(steps=50), folder)
    last.outcome_file.unlink()  # it was under way
    (last.directory / "checkpoints").mkdir()
    (last.directory / "checkpoints" / "step-0000000080.safetensors").touch()
    with pytest.raises(SettingsError, match="nchain is there with 80 steps"):
        check(small_sweep(steps=50), folder)
    lock = Claims().take(last.directory)  # the plan changed while a worker had the run
    found = train_claimed(dataclasses.replace(last, steps=50), folder.read(), lock, "worker", lambda: False)
    lock.release()
    assert found.state == "failed" and "there with 80 steps" in found.cause


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"agents": ["qrdqn"]}, "needs envs"),
        ({}, "needs agents and envs"),
        ({"agents": ["qrdqn"], "envs": ["nchain"], "seeds": 0}, "at least one"),
        ({"agents": ["qrdqn"], "envs": ["nchain"], "seeds": [1, 1]}, "twice"),
        ({"agents": ["qrdqn"], "envs": ["nchain"], "seeds": [-1]}, "not negative"),
        ({"agents": ["qrdqn"], "envs": ["nchain"], "steps": 0}, "steps"),
        ({"agents": ["qrdqn"], "envs": ["nchain"], "stepps": 5}, "steps"),
        ({"agents": ["qrdqn"], "envs": ["nchain"], "grid": {"n_step": 3}}, "grid"),
        ({"cells": [{"label": "a", "agent": "dqn"}, {"label": "a", "agent": "pqr"}]}, "labels must differ"),
        ({"cells": [{"label": "a", "agennt": "dqn"}]}, "agent"),
    ],
)
def test_sweep_files_that_are_wrong_name_the_file_and_the_field(tmp_path, fields, match):
    from tremble.sweeps.sweep_file import _toml

    path = tmp_path / "mine.toml"
    path.write_text("\n".join(f"{name} = {_toml(value)}" for name, value in fields.items()))
    with pytest.raises(SettingsError, match=match) as caught:
        read_sweep(path)
    assert "mine.toml" in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    cells = [Cell("a", "qrdqn", "NoSuch-v1"), Cell("b", "nosuch", "nchain"), Cell("c", "qrdqn", "nchain", {"x": 1})]
    with pytest.raises(SettingsError) as caught:
        check(Sweep(cells=cells, callback="no_such_module:f", track=["wanb"]), SweepFolder(tmp_path))
    for word in ("5 things", "NoSuch-v1", "nosuch", "'x'", "no_such_module", "wandb"):
        assert word in str(caught.value)


# --- stop, retry, gc --------------------------------------------------------------------------------------------------


def test_a_request_to_stop_counts_from_the_start_of_the_engine(tmp_path):
    folder = written(tmp_path)
    token = folder.stop_token()
    worker = Worker(folder)
    assert not worker.asked()
    folder.ask_to_stop()
    assert worker.asked()
    assert list(worker.work()) == [] and not folder.runs_directory.exists()
    assert Worker(folder, token=token).asked(), "its engine began before the request"
    later = Worker(folder)
    assert not later.asked(), "a worker of the next command works"
    folder.ask_to_stop()
    assert later.asked()


def test_retry_forgets_what_it_is_told_to(tmp_path):
    folder = written(tmp_path, seeds=4)
    runs = runs_of(folder)
    for run, state in zip(runs, ["failed", "timed out", "diverged", "finished", "stopped"], strict=False):
        end(run, state)
    assert retry(folder, ["failed", "timed out"]) == 2
    assert [run.outcome() is None for run in runs[:5]] == [True, True, False, False, False]
    assert runs[0].directory.exists()
    assert retry(folder, ["diverged"]) == 1 and not runs[2].directory.exists(), "it begins anew"


def test_gc_removes_checkpoints_of_results_and_what_nobody_asks_for(tmp_path):
    folder = written(tmp_path)
    runs = runs_of(folder)
    for run, state in zip(runs, ["finished", "failed", "stopped"], strict=False):
        end(run, state)
    for run in runs:
        (run.directory / "checkpoints").mkdir(parents=True)
        (run.directory / "checkpoints" / "step-0000000100.safetensors").write_bytes(b"x" * 1000)
    assert collect_garbage(folder, True, True, dry_run=True) == (2000, 2)
    assert collect_garbage(folder, True, False, dry_run=False) == (2000, 2)
    assert [(run.directory / "checkpoints").exists() for run in runs] == [False, True, False, True]
    folder.write(small_sweep(seeds=1))
    lock = Claims().take(runs[3].directory)
    assert collect_garbage(folder, False, True, dry_run=False)[1] == 1
    assert not runs[2].directory.exists() and not runs[2].outcome_file.exists()
    assert runs[3].directory.exists(), "somebody trains in it"
    lock.release()
    assert collect_garbage(folder, False, True, dry_run=False)[1] == 1 and not runs[3].directory.exists()
    assert runs[0].outcome_file.exists()


def test_runs_of_other_sweeps_are_not_garbage(tmp_path):
    one, other = (SweepFolder(tmp_path / name, tmp_path / "store") for name in ("one", "other"))
    one.write(small_sweep())
    other.write(small_sweep(settings=SMALL | {"n_step": 3}))
    for folder in (one, other):
        for run in runs_of(folder):
            end(run)
    with pytest.raises(SettingsError, match="other sweeps may have runs"):
        collect_garbage(one, True, True, False)
    assert len(list((tmp_path / "store").glob("*/seed-*.json"))) == 8


# --- engines ----------------------------------------------------------------------------------------------------------


def test_all_workers_compute_with_the_same_threads_and_flags():
    made = worker_environment({"XLA_FLAGS": "--xla_a=1", "NPROC": "64", "PYTHONPATH": "mine", "HOME": "/home"})
    assert made["NPROC"] == made["OMP_NUM_THREADS"] == "1" and made["JAX_PLATFORMS"] == "cpu"
    assert made["XLA_FLAGS"] == f"--xla_a=1 {local.XLA_FLAG}" and made["HOME"] == "/home"
    assert worker_environment(made)["XLA_FLAGS"] == made["XLA_FLAGS"]
    first, *rest = made["PYTHONPATH"].split(os.pathsep)
    assert Path(first) == Path(tremble.__file__).parents[1] and rest == ["mine"]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_a_sweep_leaves_the_cores_of_another_alone(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(local, "_kept_cores", lambda: iter([0, 0, 2]))
    assert local.cores(2) == [1, 3] and local.cores(3) == [1, 3, 2]
    assert local.cores(4) == [0, 1, 2, 3] and local.cores(5) == [None] * 5


class FakeProcess:
    """A worker that ends at once."""

    pid = 2**22 + 1

    def __init__(self, code: int):
        self.code = code

    def poll(self) -> int:
        return self.code


def engine_with(folder: SweepFolder, monkeypatch, codes: list[int]) -> tuple[LocalEngine, list[list[str]]]:
    """An engine whose workers end with these codes, and the commands that it starts."""
    commands: list[list[str]] = []

    def start(words, **options):
        commands.append(words)
        return FakeProcess(codes[min(len(commands), len(codes)) - 1])

    monkeypatch.setattr(subprocess, "Popen", start)
    return LocalEngine(folder, LocalOptions(jobs=1)), commands


def test_workers_that_die_are_started_again(tmp_path, monkeypatch):
    folder = written(tmp_path)
    token = folder.stop_token()
    engine, commands = engine_with(folder, monkeypatch, [-9, 75, -11, 143, 0])
    engine.run(lambda: None, every=0.0)
    assert engine.deaths == 4 and len(commands) == 5
    assert all(command[command.index("--token") + 1] == token for command in commands)


@pytest.mark.parametrize("said", ["vm-1  No space left on device.\n", ""])
def test_a_worker_that_cannot_go_on_ends_the_sweep_with_its_last_word(tmp_path, monkeypatch, said):
    folder = written(tmp_path)
    (folder.directory / "workers.log").write_text(said)
    monkeypatch.setattr(local, "FULL_BYTES", 10**18)
    engine, _ = engine_with(folder, monkeypatch, [CANNOT_GO_ON])
    with pytest.raises(SweepError) as caught:
        engine.run(lambda: None, every=0.0)
    assert (said.strip(".\n") or "could not even say why") in str(caught.value)
    assert "make room" in str(caught.value) and "repeat the command" in str(caught.value)


def test_workers_with_an_error_of_their_own_are_not_started_forever(tmp_path, monkeypatch):
    engine, commands = engine_with(written(tmp_path), monkeypatch, [local.OWN_ERROR])
    with pytest.raises(SweepError, match="a worker cannot go on"):
        engine.run(lambda: None, every=0.0)
    assert len(commands) == local.MOST_OWN_ERRORS + 1


def test_time_that_a_process_is_suspended_for_is_no_hang(monkeypatch):
    pulse, now = Pulse(lambda: False), time.monotonic()
    ticks = iter([False] * 3 + [True])
    done = threading.Event()
    monkeypatch.setattr(done, "wait", lambda seconds: next(ticks))
    pulse.at = now - 10_000  # as after SIGCONT
    claimed_run._watch(pulse, 4.0, lambda: pytest.fail("it is no hang"), done)


def test_a_run_that_makes_no_step_is_a_hang():
    class Hung(Exception):
        pass

    def hang():
        raise Hung

    with pytest.raises(Hung):
        claimed_run._watch(Pulse(lambda: False), 0.05, hang, threading.Event())


def test_sweeps_from_python_name_what_is_wrong(tmp_path):
    with pytest.raises(SettingsError, match="plan: "):
        as_sweep({"agents": "qrdqn", "envs": 3}, "plan")
    with pytest.raises(SettingsError, match="holds no sweep"):
        SweepFolder(tmp_path).read()


def test_a_cluster_that_is_not_there_is_one_message(tmp_path):
    from rich.console import Console

    from tremble.sweeps.ray_engine import RayOptions, work_on_ray

    with pytest.raises(SettingsError, match=r"no Ray cluster at 127\.0\.0\.1:9: .*refused.*ray start --head"):
        work_on_ray(written(tmp_path), RayOptions("127.0.0.1:9"), Console(quiet=True))


def test_imports_of_a_worker_are_those_of_its_engine(tmp_path):
    """``python -m tremble.sweeps.worker`` on a directory without a sweep: one line, and the code for that."""
    found = subprocess.run(
        [sys.executable, "-m", "tremble.sweeps.worker", str(tmp_path)],
        env=worker_environment(os.environ),
        capture_output=True,
        text=True,
    )
    assert found.returncode == CANNOT_GO_ON and "holds no sweep" in found.stderr and "Traceback" not in found.stderr
