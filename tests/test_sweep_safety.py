"""Sweep directories from anywhere: plans that are none, links, names, and code that only files name."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest

from tests.sweep_makers import HOSTILE
from tremble.cli.main import main
from tremble.records import CheckpointError
from tremble.settings import SettingsError
from tremble.sweep_records import Outcome, as_text
from tremble.sweeps.claimed_run import Tries
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.local import LocalEngine, LocalOptions
from tremble.sweeps.sweep import Search, Sweep
from tremble.sweeps.upkeep import collect_garbage, retry
from tremble.sweeps.worker import Worker
from tremble.training.consent import UntrustedCodeError

SMALL = {"widths": [8], "batch_size": 4, "start_steps": 20}
OWN = (CheckpointError, SettingsError)
EVIL = "evil_sweep_module"
COMMANDS = ("status", "stop", "retry", "gc")


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module on the path whose import is the failure; returns whether it was imported."""
    (tmp_path / "path").mkdir()
    code = "from tremble.criteria import Mean as Class\nfrom gymnasium import Env as Environment\nrun = print\n"
    (tmp_path / "path" / f"{EVIL}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "path")
    yield lambda: EVIL in sys.modules
    sys.modules.pop(EVIL, None)


@pytest.fixture
def folder(tmp_path) -> SweepFolder:
    made = SweepFolder(tmp_path / "sweep")
    made.write(Sweep(agents=["qrdqn"], envs=["CartPole-v1"], steps=100, seeds=2, settings=SMALL))
    return made


@pytest.fixture
def outside(tmp_path) -> Path:
    """A directory elsewhere, which must stay as it is."""
    place = tmp_path / "outside"
    (place / "seed-0").mkdir(parents=True)
    (place / "seed-0" / "precious").write_text("stays")
    (place / "file").write_text("stays")
    return place


def contents(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


def first_run(folder: SweepFolder) -> PlannedRun:
    return folder.planned(folder.read())[0][0]


def end(run: PlannedRun, state: str = "finished") -> None:
    run.directory.mkdir(parents=True, exist_ok=True)
    found = Outcome(state, "", 100, 1.0, 1.0, "host", "w", {}, None, 1)
    run.outcome_file.write_text(as_text(dataclasses.asdict(found)))


def changed(folder: SweepFolder, **fields) -> None:
    """The plan with other fields."""
    plan = json.loads(folder.plan_file.read_text())
    folder.plan_file.write_text(json.dumps(plan | {"sweep": plan["sweep"] | fields}))


# --- plans ------------------------------------------------------------------------------------------------------------

CELL = {"label": "a", "agent": "qrdqn", "env": "nchain"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "3",
        "NaN",
        '{"format": 1}',
        '{"format": 2, "sweep": {}}',
        '{"format": 1, "sweep": null}',
        '{"format": 1, "sweep": []}',
        '{"format": 1, "sweep": {"cells": []}}',
        '{"format": 1, "sweep": {"cells": [3]}}',
        json.dumps({"format": 1, "sweep": {"cells": [CELL]}}),
        '{"format": 1, "sweep": ' + "[" * 100_000,
        '{"format": 1, "sweep": ' + "[" * 40 + "]" * 40 + "}",
        "\x00" * 100,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_a_plan_that_is_none_is_an_error_of_the_library(folder, text):
    folder.plan_file.write_text(text, encoding="utf-8")
    for attempt in (folder.read, folder.data, folder.ask_to_stop, lambda: Worker(folder), lambda: retry(folder, [])):
        with pytest.raises(OWN):
            attempt()
    assert not folder.stop_file.exists()


JUNK = (None, True, -1, 2**63, 10**30, 1e308, "", "x", "../../outside", [], {}, [1, 2], [[1], "a"], {"a": 1}, [None])


def test_fields_of_other_types_are_errors_of_the_library(folder):
    fields = json.loads(folder.plan_file.read_text())["sweep"]
    cell = fields["cells"][0]
    changes = [{name: junk} for name in fields for junk in JUNK]
    changes += [{"cells": [cell | {name: junk}]} for name in cell for junk in JUNK]
    options = cell["run_options"]
    changes += [{"cells": [cell | {"run_options": options | {name: junk}}]} for name in options for junk in JUNK]
    refused = 0
    for change in changes:
        changed(folder, **change)
        try:
            for run in folder.planned(folder.read())[0][:3]:
                assert run.directory.parent.parent == folder.runs_directory, "one folder below, whatever it is called"
                run.spec  # noqa: B018
        except OWN:
            refused += 1
        folder.plan_file.write_text(json.dumps({"format": 1, "sweep": fields}))
    assert refused > len(changes) / 2


@pytest.mark.parametrize(
    "name", [*HOSTILE, "../../outside", "/etc/passwd", "a/b\\c", "..", ".", "", "x" * 5000, "\u0000"]
)
def test_names_of_environments_lead_nowhere(folder, name):
    cell = json.loads(folder.plan_file.read_text())["sweep"]["cells"][0]
    changed(folder, cells=[cell | {"env": name, "label": name}], name=name)
    run = first_run(folder)
    assert run.directory.parent.parent == folder.runs_directory and len(run.directory.parent.name) < 200
    assert run.directory.resolve().is_relative_to(folder.directory.resolve())


def test_text_of_a_plan_and_of_outcomes_is_shown_not_interpreted(folder, capsys):
    cell = json.loads(folder.plan_file.read_text())["sweep"]["cells"][0]
    evil = "\x1b[31mred [/red] [bold]\u202e"
    changed(folder, cells=[cell | {"label": evil}], name=evil)
    run = first_run(folder)
    run.directory.mkdir(parents=True)
    found = Outcome("failed", evil, 100, 1.0, 1.0, evil, evil, {}, None, 1)
    run.outcome_file.write_text(as_text(dataclasses.asdict(found)))
    main(["sweep", "status", str(folder.directory)])
    said = capsys.readouterr().out
    assert "\x1b[31m" not in said and "\u202e" not in said and "[/red]" in said


# --- code -------------------------------------------------------------------------------------------------------------

NAMING = (
    {"cells": {"env": f"{EVIL}:Environment"}},
    {"cells": {"agent_options": SMALL | {"criterion": f"{EVIL}:Class"}}},
    {"cells": {"agent": f"{EVIL}:run"}},
    {"cells": {"env": "nchain", "env_options": {"length": f"{EVIL}:run"}}},
    {"callback": f"{EVIL}:run"},
)


@pytest.mark.parametrize("naming", NAMING, ids=lambda naming: str(*naming.values())[:40])
def test_code_that_only_a_plan_names_is_refused(folder, evil, capsys, naming):
    cell = json.loads(folder.plan_file.read_text())["sweep"]["cells"][0]
    changed(folder, **({"cells": [cell | naming["cells"]]} if "cells" in naming else naming))
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(folder.directory), "--no-measure"])
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 1 and "names code to import" in said and EVIL in said and not evil()
    for command in COMMANDS:
        main(["sweep", command, str(folder.directory)])
    assert not evil()
    assert not folder.runs_directory.exists()


@pytest.mark.parametrize("fields", [{"settings": {"criterion": f"{EVIL}:Class"}}, {"agents": [f"{EVIL}:run"]}])
def test_a_plan_in_shorthand_imports_nothing(folder, evil, fields):
    folder.plan_file.write_text(
        json.dumps({"format": 1, "sweep": {"agents": ["qrdqn"], "envs": ["nchain"], "steps": 5} | fields})
    )
    with pytest.raises(CheckpointError, match="not written out"):
        folder.read()
    assert not evil()


def test_the_space_of_a_search_imports_nothing(folder, evil):
    space = {"criterion": [f"{EVIL}:Class", f"{EVIL}:Other"], "n_step": [1]}
    folder.write(
        Sweep(agents=["qrdqn"], envs=["nchain"], steps=5, search=Search({"n_step": [1]}, method="grid", seeds=1))
    )
    plan = json.loads(folder.plan_file.read_text())
    label = plan["sweep"]["cells"][0]["label"]
    plan["sweep"]["search"] |= {"space": space, "fitting": {label: list(space)}}
    folder.plan_file.write_text(json.dumps(plan))
    assert len(folder.data().runs) == 2 and not evil()
    with pytest.raises(SystemExit):
        main(["sweep", str(folder.directory), "--no-measure"])
    assert not evil(), "the space names code as well"


def test_a_callback_of_the_worker_is_not_looked_for_in_the_directory(folder, evil):
    with pytest.raises(UntrustedCodeError, match="callback"):
        changed(folder, callback=f"{EVIL}:run")
        from tremble.sweeps.start import consent

        consent(folder.read(), folder, trust_code=False)


# --- links ------------------------------------------------------------------------------------------------------------


def attempts(folder: SweepFolder):
    """Everything that writes to or removes from a sweep's directory."""
    return {
        "worker": lambda: list(Worker(folder).work(wait=False)),
        "retry": lambda: retry(folder, ["failed", "diverged", "finished"]),
        "gc": lambda: collect_garbage(folder, True, True, False),
    }


@pytest.mark.parametrize("what", ["worker", "retry", "gc"])
@pytest.mark.parametrize("where", ["runs", "cell", "run"])
def test_folders_that_are_links_are_not_followed(folder, outside, what, where):
    run = first_run(folder)
    for each in folder.planned(folder.read())[0]:
        end(each, "failed" if what != "gc" else "finished")
    place = {"runs": folder.runs_directory, "cell": run.directory.parent, "run": run.directory}[where]
    moved = outside / "moved"
    place.rename(moved)
    os.symlink(moved, place)
    if what == "worker":
        for path in moved.rglob("seed-*.json"):
            path.unlink()
        if where == "run":
            run.outcome_file.unlink()
    before = contents(outside)
    with pytest.raises(OWN, match="link"):
        folder.require_place()
        attempts(folder)[what]()
    assert contents(outside) == before


def test_a_plan_cannot_name_a_place_outside(folder, outside):
    plan = json.loads(folder.plan_file.read_text())
    for where in ("../outside", str(outside), "../../../../../../etc"):
        folder.plan_file.write_text(json.dumps(plan | {"runs": where}))
        there = SweepFolder(folder.directory)
        for what in ("retry", "gc"):
            with pytest.raises(SettingsError, match="--runs"):
                attempts(there)[what]()
        with pytest.raises(SystemExit):
            main(["sweep", str(folder.directory), "--no-measure"])
    assert contents(outside) == {"file": "stays", "seed-0/precious": "stays"}


def test_files_that_are_links_are_not_written_through(folder, outside):
    run = first_run(folder)
    run.directory.mkdir(parents=True)
    target = outside / "file"
    for path in (run.directory.with_name("seed-0.tries.jsonl"), folder.directory / "workers.log"):
        os.symlink(target, path)
    with pytest.raises(CheckpointError, match="link"):
        Tries(run).begin("worker")
    with pytest.raises(CheckpointError, match="link"):
        LocalEngine(folder, LocalOptions(1)).run(lambda: None)
    os.symlink(target, folder.stop_file)
    folder.ask_to_stop()  # the link is replaced, not what it leads to
    os.unlink(folder.plan_file)
    os.symlink(target, folder.plan_file)
    folder.write(Sweep(agents=["qrdqn"], envs=["nchain"], steps=5))
    assert contents(outside)["file"] == "stays" and not folder.plan_file.is_symlink()


def test_an_outcome_that_is_a_link_or_a_pipe(folder, outside):
    run = first_run(folder)
    run.directory.mkdir(parents=True)
    os.symlink(outside / "file", run.outcome_file)
    with pytest.raises(CheckpointError):
        run.outcome()
    run.outcome_file.unlink()
    os.mkfifo(run.outcome_file)  # reading it would never end
    for attempt in (run.outcome, folder.data, lambda: list(Worker(folder).work(wait=False))):
        with pytest.raises(CheckpointError, match="not a regular file"):
            attempt()
    assert contents(outside)["file"] == "stays"


def test_garbage_in_place_of_runs_is_an_error_of_the_library(folder):
    run = first_run(folder)
    run.directory.parent.parent.mkdir()
    run.directory.parent.write_text("a file where a folder belongs")
    for attempt in (run.outcome, folder.data, *attempts(folder).values()):
        with pytest.raises(OWN):
            attempt()
    run.directory.parent.unlink()
    run.directory.mkdir(parents=True)
    for junk in ("garbage", "[" * 100_000, '{"worker": ' * 50, "\x00", '[1]\n"a"\n3\n'):
        run.directory.with_name("seed-0.tries.jsonl").write_text(junk)
        Tries(run).begin("worker")  # a record of tries that cannot be read is no reason not to train
    (run.directory / "checkpoints").mkdir()
    (run.directory / "checkpoints" / "step-abc.safetensors").touch()
    assert Tries(run).step == 0


def test_garbage_that_is_collected_is_inside(folder, outside):
    end(first_run(folder))
    stray = folder.runs_directory / "stray"
    stray.mkdir()
    os.symlink(outside / "seed-0", stray / "seed-0")
    os.symlink(outside, folder.runs_directory / "linked")
    (stray / "seed-1").mkdir()
    os.symlink(outside, stray / "seed-1" / "link")
    os.symlink(outside / "file", stray / "seed-1.json")
    collect_garbage(folder, True, True, False)
    assert not (stray / "seed-1").exists()
    assert contents(outside) == {"file": "stays", "seed-0/precious": "stays"}


def test_the_copy_of_a_sweep_file_is_not_written_through_a_link(folder, outside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('agents = ["nosuch"]\nenvs = ["nchain"]\n')
    os.symlink(outside / "file", folder.directory / "sweep.toml")
    with pytest.raises(SystemExit):
        main(["sweep", "mine.toml", "--out", str(folder.directory)])
    assert contents(outside)["file"] == "stays"
