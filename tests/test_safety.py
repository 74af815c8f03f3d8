"""Run directories from anywhere: hostile files, code that only files name, links, text that is not what it seems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from rich.console import Console

import tremble
from tremble import escape
from tremble.cli.main import main
from tremble.records import CheckpointError, as_record, finite, parse, read_rows
from tremble.report.run_curves import load_curve
from tremble.report.run_report import report_curves
from tremble.settings import SettingsError
from tremble.training import checkpoint
from tremble.training.machine import MadeWith, restore_flags
from tremble.training.spec import RunSpec

SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
EVIL = ["\x1b[31mred\x1b[0m", "[/red]", "# heading\n<script>alert(1)</script>", r"$\frac{$", "a|b", "\u202etxt.exe"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "run"
    tremble.train("qrdqn", "nchain", steps=60, out=directory, record_every=20, **SMALL)
    return directory


def rewritten(run: Path, tmp_path: Path, **changes: object) -> Path:
    """A copy of the run whose files say something else, with the right checksum."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    for path in copy.rglob("*.safetensors"):
        contents = checkpoint.read(path)
        meta = contents.meta
        for name, value in changes.items():
            *parents, last = name.split("__")
            place = meta
            for parent in parents:
                place = place[parent]
            place[last] = value
        trees: dict[str, dict[str, np.ndarray]] = {}
        for name, array in contents.arrays.items():
            group, _, rest = name.partition("/")
            trees.setdefault(group, {})[rest] = array
        checkpoint.save(path, trees, meta)
    return copy


# --- code -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A module on the import path that leaves a trace when it is imported."""
    trace = tmp_path / "it ran"
    (tmp_path / "evil_mod.py").write_text(f"open({str(trace)!r}, 'w')\ndef f(u): return u\nclass Env: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield trace
    sys.modules.pop("evil_mod", None)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("spec__agent_options", {"criterion": "evil_mod:f"}),
        ("spec__agent_options", {"representation": "evil_mod:f"}),
        ("spec__agent_options", {"network": "evil_mod:f"}),
        ("spec__agent_options", {"widths": ["evil_mod:f"]}),
        ("settings__agent_settings", {"criterion.function": "evil_mod:f"}),
        ("spec__env", "evil_mod:Env"),
        ("spec__env", "evil_mod:Env-v0"),
        ("spec__evaluate_env", "evil_mod:Env"),
    ],
)
@pytest.mark.slow
def test_nothing_that_only_files_name_is_imported(run, tmp_path, evil, place, value):
    copy = rewritten(run, tmp_path, **{place: value})
    with pytest.raises((CheckpointError, SettingsError)) as error:
        tremble.resume(copy)
    if not place.endswith("settings"):
        assert "evil_mod" in str(error.value) and "trust_code=True" in str(error.value)
    for command in (["resume"], ["evaluate"], ["video"]):
        with pytest.raises(SystemExit) as stop:
            main([*command, str(copy)])
        assert stop.value.code == 1
    if place not in ("spec__env", "spec__evaluate_env"):  # loading makes no environment
        with pytest.raises((CheckpointError, SettingsError)):
            tremble.load(copy)
    assert not evil.exists()


def test_a_recorded_function_is_code_too(tmp_path, evil):
    """The options name nothing, but the settings in the file name another function than the criterion's own."""
    directory = tmp_path / "run"
    tremble.train("qrdqn", "nchain", steps=40, out=directory, criterion="utility", **SMALL)
    meta = checkpoint.read(directory / "weights.safetensors").meta
    name = next(name for name in meta["settings"]["agent_settings"] if name.endswith("function"))
    settings = meta["settings"]["agent_settings"] | {name: "evil_mod:f"}
    copy = rewritten(directory, tmp_path, settings__agent_settings=settings)
    with pytest.raises(CheckpointError, match=f"names code to import: {name}=evil_mod:f"):
        tremble.load(copy)
    with pytest.raises(CheckpointError, match="trust_code=True"):
        tremble.resume(copy)
    assert not evil.exists()
    tremble.load(copy, trust_code=True)
    assert evil.exists()


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl", "timing.jsonl"])
@pytest.mark.parametrize("hard", [False, True])
def test_logs_that_are_links_are_refused_and_what_they_lead_to_stays(run, tmp_path, name, hard):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    outside = tmp_path / "outside"
    outside.write_text("precious\n" * 1000)
    (copy / name).unlink(missing_ok=True)
    (os.link if hard else os.symlink)(outside, copy / name)
    later = checkpoint.read(sorted((copy / "checkpoints").iterdir())[-1]).meta["spec"] | {"steps": 80}
    copy = rewritten(copy, tmp_path / "again", spec=later) if (tmp_path / "again").mkdir() is None else copy
    with pytest.raises(CheckpointError):
        tremble.resume(copy)
    assert outside.read_text() == "precious\n" * 1000


@pytest.mark.parametrize("folder", ["checkpoints", "checkpoints/blocks"])
def test_folders_that_are_links_are_refused_and_what_they_lead_to_stays(run, tmp_path, folder):
    copy, outside = tmp_path / "copy", tmp_path / "outside"
    subprocess.run(["cp", "-r", str(run), str(copy)], check=True)
    outside.mkdir()
    (outside / "precious.safetensors").write_text("stays")
    if (copy / folder).exists():
        subprocess.run(["rm", "-r", str(copy / folder)], check=True)
    (copy / folder).symlink_to(outside)
    with pytest.raises(CheckpointError, match="is a link or a file where a folder belongs"):
        tremble.resume(copy)
    assert [path.name for path in outside.iterdir()] == ["precious.safetensors"]


@pytest.mark.parametrize("logs", [{"../x": 0}, {"/etc/passwd": 0}, {"metrics": -1}, {"metrics": "a"}, [], None])
def test_names_of_logs_in_metadata_are_no_paths(run, tmp_path, logs):
    copy = rewritten(run, tmp_path)
    for path in (copy / "checkpoints").glob("step-*"):
        contents = checkpoint.read(path)
        trees: dict[str, dict[str, np.ndarray]] = {}
        for name, array in contents.arrays.items():
            trees.setdefault(name.partition("/")[0], {})[name.partition("/")[2]] = array
        checkpoint.save(path, trees, contents.meta | {"logs": logs})
    with pytest.raises(CheckpointError, match="logs"):
        tremble.resume(copy)


def test_permissions_follow_the_umask(run):
    umask = os.umask(0)
    os.umask(umask)
    for path in run.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o777 == 0o666 & ~umask, path


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec__steps": "many"}, "steps"),
        ({"spec__steps": -5}, "steps"),
        ({"spec__seed": None}, "seed"),
        ({"spec__colour": "red"}, "unknown fields"),
        ({"encoder__shape": [-1]}, "encoder"),
        ({"encoder__kind": "pickle"}, "encoder"),
        ({"actions__sizes": [0]}, "actions"),
        ({"actions__start": [0, 0]}, "actions"),
        ({"counts__updates": 1.5}, "updates"),
        ({"made_with": []}, "made_with"),
        ({"settings__agent_settings": 3}, "agent_settings"),
    ],
)
def test_what_does_not_fit_names_file_and_field(run, tmp_path, changes, said):
    copy = rewritten(run, tmp_path, **changes)
    with pytest.raises(CheckpointError, match=rf"copy/.*{said}"):
        tremble.load(copy)
        tremble.resume(copy)


def test_json_with_nan_or_deep_nesting_is_refused():
    for text in ('{"a": NaN}', "[" * 5000 + "]" * 5000, "[" * 20 + "]" * 20, "{", "", b"\xff"):
        with pytest.raises(CheckpointError, match="x is"):
            parse(text, "x")
    assert parse('{"a": [1, null]}', "x") == {"a": [1, None]}


def test_records_have_exactly_their_fields():
    entry = {"from_step": 0, "versions": {"jax": "1"}, "processor": "p", "threads": 2, "xla_flags": []}
    assert as_record(entry, MadeWith, "x") == MadeWith(0, {"jax": "1"}, "p", 2, [])
    for wrong in (entry | {"threads": "2"}, entry | {"more": 1}, {"from_step": 0}, [], None):
        with pytest.raises(CheckpointError):
            as_record(wrong, MadeWith, "x")


def test_rows_of_logs(tmp_path):
    path = tmp_path / "episodes.jsonl"
    path.write_text('{"step": 1, "return": 2.0, "length": 3}\n{"step": 2')
    assert read_rows(path, "episodes") == [{"step": 1, "return": 2.0, "length": 3}]
    for line in ("garbage", "[]", '{"step": "a", "return": 1.0, "length": 1}', '{"step": 1}'):
        path.write_text(f"{line}\n")
        with pytest.raises(CheckpointError, match="line 1"):
            read_rows(path, "episodes")


def test_metrics_that_are_not_finite_are_null_and_say_so():
    row = finite({"step": 1, "loss": float("nan"), "returns": [1.0, float("-inf")], "more": {"w1": float("inf")}})
    assert row == {
        "step": 1,
        "loss": None,
        "returns": [1.0, None],
        "more": {"w1": None},
        "not_finite": {"loss": "nan", "returns.1": "-inf", "more.w1": "inf"},
    }
    json.dumps(row, allow_nan=False)


# --- what runs were made with -----------------------------------------------------------------------------------------


def test_runs_say_what_they_were_made_with(run):
    recorded = json.loads((run / "config.json").read_text())["made_with"]
    assert len(recorded) == 1 and recorded[0]["from_step"] == 0
    assert {"tremble", "jax", "jaxlib", "numpy", "python"} <= recorded[0]["versions"].keys()
    assert recorded[0]["threads"] >= 1 and recorded[0]["processor"]


def test_another_machine_is_said_and_recorded(tmp_path):
    steps = iter(range(1, 9))

    def stop(step, row):
        if next(steps) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tremble.train("qrdqn", "nchain", steps=60, out=tmp_path / "run", chunk=20, on_progress=stop, **SMALL)
    elsewhere = json.loads((tmp_path / "run" / "config.json").read_text())["made_with"]
    elsewhere[0]["versions"]["jaxlib"] = "0.0.1"
    elsewhere[0]["threads"] = 96
    copy = rewritten(tmp_path / "run", tmp_path, made_with=elsewhere)
    with pytest.warns(UserWarning, match=r"not bit for bit.*jaxlib 0.0.1 is now.*96 threads are now"):
        tremble.resume(copy)
    recorded = json.loads((copy / "config.json").read_text())["made_with"]
    assert [entry["from_step"] for entry in recorded] == [0, 40]


def test_only_harmless_flags_are_restored(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("NPROC", raising=False)
    flags = ["--xla_cpu_multi_thread_eigen=false", "--xla_dump_to=x", "--xla_force_host_platform_device_count=a b"]
    restore_flags(MadeWith(0, {}, "", 3, flags))
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_multi_thread_eigen=false" and os.environ["NPROC"] == "3"
    monkeypatch.setenv("NPROC", "1")
    restore_flags(MadeWith(0, {}, "", 3, []))
    assert os.environ["NPROC"] == "1", "what the user set stays"


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", EVIL)
def test_text_is_escaped_for_where_it_is_shown(text):
    assert escape.plain(text).isprintable()
    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(escape.console(text))
    assert console.export_text().strip() == escape.plain(text)
    shown = escape.markdown(text)
    assert "<script" not in shown and "\n" not in shown
    figure = matplotlib.figure.Figure()
    figure.suptitle(escape.figure(text))
    figure.savefig(os.devnull, format="png")


@pytest.mark.parametrize("text", EVIL)
def test_names_from_files_reach_reports_escaped(tmp_path, text):
    (tmp_path / "run").mkdir()
    spec = RunSpec("pqr", text, 100).as_json()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"spec": spec}))
    (tmp_path / "run" / "episodes.jsonl").write_text('{"step": 9, "return": 9.0, "length": 9}\n')
    report = report_curves([load_curve(tmp_path / "run")], tmp_path / "out")
    table = report.split("```")[0]
    assert "\x1b" not in report and "<script" not in table and "\n# heading" not in report


@pytest.mark.parametrize("text", EVIL)
def test_settings_from_files_reach_figures_and_tables_escaped(tmp_path, capsys, text):
    """They name the curves of runs that differ in them."""
    for value in (text, f"{text}{text}"):
        for seed in (0, 1):
            run = tmp_path / f"run-{len(value)}-{seed}"
            run.mkdir()
            spec = RunSpec("pqr", "CartPole-v1", 100, seed, agent_options={text: value}).as_json()
            settings = {"agent_settings": {f"criterion.{text}": value}, "env_settings": {text: [value, {}]}}
            (run / "config.json").write_text(json.dumps({"spec": spec, "settings": settings}))
            (run / "episodes.jsonl").write_text('{"step": 9, "return": 9.0, "length": 9}\n')
    main(["curves", *map(str, tmp_path.glob("run-*")), "--out", str(tmp_path / "out")])
    said, report = capsys.readouterr().out, (tmp_path / "out" / "report.md").read_text()
    table = report.split("```")[0]
    assert "\x1b" not in said + report and "<script" not in table and "\n# heading" not in report
    data = "".join((tmp_path / "out" / name).read_text() for name in ("means.csv", "episodes.csv"))
    assert "\x1b" not in data and "\u202e" not in data
    assert len(list((tmp_path / "out").iterdir())) == 6


@pytest.mark.parametrize("settings", [[], {"agent_settings": 3}, {"env_settings": None}, "text"])
def test_settings_of_another_form_are_one_message(tmp_path, settings):
    spec = RunSpec("pqr", "CartPole-v1", 100).as_json()
    (tmp_path / "config.json").write_text(json.dumps({"spec": spec, "settings": settings}))
    (tmp_path / "episodes.jsonl").write_text('{"step": 9, "return": 9.0, "length": 9}\n')
    with pytest.raises(CheckpointError, match="is not as this version writes it"):
        load_curve(tmp_path)


def test_markup_in_arguments_is_shown_as_it_is(capsys):
    with pytest.raises(SystemExit):
        main(["train", "pqr", "--env", "[/red]", "--steps", "10", "--out", "x[/y]"])
    error = capsys.readouterr().err
    assert "[/red]" in error and "Traceback" not in error


# --- all of it --------------------------------------------------------------------------------------------------------


def module(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, env=env, timeout=900)


@pytest.mark.slow
def test_hostile_directories():
    """Changed files under audit hooks, in a process of its own because hooks cannot be removed."""
    result = module("tests.fuzz", "--files", "200")
    assert result.returncode == 0, result.stdout[-3000:]


@pytest.mark.slow
def test_interruptions_at_every_moment():
    result = module("tests.kills", "--only", "n_step=3", "--rounds", "1")
    assert result.returncode == 0, result.stdout[-3000:]
