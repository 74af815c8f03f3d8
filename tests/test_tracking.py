"""Tracking: every tracker for real and read back with its own format, and nothing that a tracker does ends a run."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import pytest

from tremble.settings import SettingsError
from tremble.trackers import MLflow, TensorBoard, Trackers, WeightsAndBiases, open_trackers

CONFIG = {"gamma": 0.9, "criterion.delta_0": 500.0, "widths": [64, 64]}
ROWS = [(10, {"loss": 0.5, "return": 1.0}), (20, {"loss": 0.25, "return": 2.0}), (10, {"loss": 0.125, "return": 3.0})]


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch):
    """No variable of the person who runs the tests counts, and nothing is sent anywhere."""
    for variable in [v for v in os.environ if v.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")


def write_all(sink, rows=ROWS):
    for step, row in rows:
        sink.write(step, row)
    sink.close()


# TensorBoard ----------------------------------------------------------------------------------------------------------


def tensorboard_events(directory):
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])  # after the length and its checksum
            data = data[12 + length + 4 :]


def test_tensorboard_reads_back(tmp_path):
    write_all(TensorBoard(tmp_path / "deep" / "events"))
    events = list(tensorboard_events(tmp_path / "deep" / "events"))
    rows = [(e.step, {v.tag: v.simple_value for v in e.summary.value}) for e in events if e.HasField("summary")]
    assert rows == ROWS
    assert events[0].file_version == "brain.Event:2"


def test_tensorboard_starts_again_wherever_the_step_goes_back(tmp_path):
    write_all(TensorBoard(tmp_path))
    write_all(TensorBoard(tmp_path), ROWS[1:2])
    assert len(list(tmp_path.iterdir())) == 2, "a resume within the same second must not replace the first file"
    events = tensorboard_events(tmp_path)
    starts = [e.step for e in events if e.HasField("session_log") and e.session_log.status == e.session_log.START]
    assert starts == [10, 10, 20]


def test_a_full_disk_is_an_error_and_not_a_wait(tmp_path):
    sink = TensorBoard(tmp_path)
    sink._file._py_recordio_writer._writer.close()
    with pytest.raises(ValueError, match="closed file"):
        write_all(sink, ROWS * 20)


# Weights & Biases -----------------------------------------------------------------------------------------------------


def wandb_records(path):
    """The records of a .wandb file: blocks of 32 KiB, records cut into pieces that never cross them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, piece = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768  # too little room for a header: padding
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        if position + 7 + length > len(data):
            return  # still being written
        piece += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield Record.FromString(piece)
            piece = b""


def wandb_finished(path):
    """The records once the last one is there: a service of wandb writes them, on a busy machine after `finish`."""
    deadline = time.monotonic() + 60
    while True:
        records = list(wandb_records(path))
        if any(r.HasField("exit") for r in records) or time.monotonic() > deadline:
            return records
        time.sleep(0.2)


def test_wandb_is_offline_and_reads_back(tmp_path, capfd):
    write_all(WeightsAndBiases(tmp_path, "the-name", CONFIG))
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    records = wandb_finished(path)
    history = [
        {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in r.history.item}
        for r in records
        if r.HasField("history")
    ]
    assert [(row["step"], {name: row[name] for name in ROWS[0][1]}) for row in history] == ROWS
    (run,) = (r.run for r in records if r.HasField("run"))
    assert (run.display_name, run.project) == ("the-name", "tremble")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config.items() >= CONFIG.items()
    assert capfd.readouterr() == ("", ""), "what is printed belongs to the command line"


def test_variables_of_wandb_count(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    write_all(WeightsAndBiases(tmp_path, "the-name", CONFIG))
    assert not list(tmp_path.glob("wandb/*run-*"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "another")
    write_all(WeightsAndBiases(tmp_path, "the-name", CONFIG))
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")

    assert [r.run.project for r in wandb_finished(path) if r.HasField("run")] == ["another"]


# MLflow ---------------------------------------------------------------------------------------------------------------


READ_TRACKIO = """
import sys
from pathlib import Path
from tremble.trackers import Trackio
first, second = (Trackio(Path("."), name, {"gamma": 0.9}) for name in ("the-name", "another"))
for step, row in ((10, {"loss": 0.5}), (20, {"loss": 0.25}), (10, {"loss": 0.125})):
    first.write(step, row)
second.write(1, {"return": 3.0})
second.close()
first.close()
from trackio.sqlite_storage import SQLiteStorage
names = sorted(SQLiteStorage.get_runs("tremble"))
read = SQLiteStorage.get_logs
logs = {n: [(r["step"], r.get("loss", r.get("return"))) for r in read("tremble", n)] for n in names}
print(logs, SQLiteStorage.get_run_config("tremble", "the-name")["gamma"], file=sys.stderr)
"""


def test_trackio_reads_back_and_prints_nothing(tmp_path):
    """In a process of its own: trackio looks for its folder when it is imported."""
    told = subprocess.run(
        [sys.executable, "-c", READ_TRACKIO],
        env={**os.environ, "TRACKIO_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert told.stdout == "", "what is printed belongs to the command line"
    assert "{'another': [(1, 3.0)], 'the-name': [(10, 0.5), (20, 0.25), (10, 0.125)]} 0.9" in told.stderr


def check_mlflow(uri):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("tremble")
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.run_name for run in runs] == ["the-name"] * 2, "a resume is another run of the same name"
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        assert run.data.params == {name: str(value) for name, value in CONFIG.items()}
    run = min(runs, key=lambda run: run.info.start_time)
    for name in ROWS[0][1]:
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted((m.step, m.value) for m in history) == sorted((step, row[name]) for step, row in ROWS)


@pytest.mark.slow
def test_mlflow_reads_back_from_its_file(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run_directory = tmp_path / "run"
    write_all(MLflow(run_directory, "the-name", CONFIG))
    write_all(open_trackers(["mlflow"], run_directory, "the-name", CONFIG), [(20, {"loss": math.nan})])
    check_mlflow(f"sqlite:///{run_directory / 'mlflow.db'}")
    assert not list(elsewhere.iterdir()), "everything is kept in the directory of the run"


@pytest.fixture
def mlflow_server(tmp_path):
    if importlib.util.find_spec("flask") is None:
        pytest.skip("a server needs the package mlflow; mlflow-skinny, which is enough to write to one, has none")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}", "--artifacts-destination", str(tmp_path)]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*command, *store], stdout=log, stderr=log, cwd=tmp_path)
    uri = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{uri}/health", server, tmp_path / "log")
        yield uri
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(url, server, log, seconds=90):
    for _ in range(2 * seconds):
        assert server.poll() is None, log.read_text()
        try:
            return urllib.request.urlopen(url, timeout=5)
        except OSError:  # refused, or not answered in time
            time.sleep(0.5)
    raise AssertionError(f"no answer from the server: {log.read_text()}")


@pytest.mark.slow
def test_mlflow_reads_back_from_a_server(tmp_path, monkeypatch, mlflow_server):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    for _ in range(2):
        write_all(open_trackers(["mlflow"], tmp_path / "run", "the-name", CONFIG))
    check_mlflow(mlflow_server)
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_gone_is_reported_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(SettingsError, match="tracker 'mlflow' cannot be opened"):
        open_trackers(["mlflow"], tmp_path, "the-name", CONFIG)


# Several, none, and failing ones --------------------------------------------------------------------------------------


class Recorder:
    def __init__(self, fails_at=None, fails_to_close=False):
        self.fails_at, self.fails_to_close = fails_at, fails_to_close
        self.rows, self.closed = [], 0

    def write(self, step, row):
        if step == self.fails_at:
            raise OSError("no space left on device")
        self.rows.append((step, row))

    def close(self):
        self.closed += 1
        if self.fails_to_close:
            raise OSError("stale file handle")


def test_a_failing_sink_is_reported_once_and_the_others_go_on(capsys):
    before, broken, after = Recorder(), Recorder(fails_at=20, fails_to_close=True), Recorder()
    write_all(Trackers([before, broken, after]))
    assert before.rows == after.rows == ROWS and broken.rows == ROWS[:1]
    assert before.closed == broken.closed == after.closed == 1
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert err.startswith("warning: Recorder failed at step 20") and "no space left on device" in err


def test_failing_to_close_is_reported_and_the_others_are_closed(capsys):
    sinks = Recorder(), Recorder(fails_to_close=True), Recorder()
    trackers = Trackers(sinks)
    write_all(trackers)
    trackers.close()
    assert [sink.closed for sink in sinks] == [1, 1, 1], "closing twice is closing once"
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_interrupt_is_not_an_error_of_the_sink():
    class Interrupted(Recorder):
        def write(self, step, row):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trackers([Interrupted()]).write(1, {})


def test_no_trackers_write_nowhere(tmp_path):
    write_all(open_trackers([], tmp_path, "the-name", CONFIG))
    assert not list(tmp_path.iterdir())


def test_opened_by_name_and_only_once(tmp_path):
    write_all(open_trackers(["tensorboard", "tensorboard"], tmp_path, "the-name", CONFIG))
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


def test_unknown_names_are_refused_before_anything_is_opened(tmp_path):
    with pytest.raises(SettingsError, match="there is no tracker 'tensorbord'; did you mean 'tensorboard'"):
        open_trackers(["tensorboard", "tensorbord"], tmp_path, "the-name", CONFIG)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
def test_a_missing_package_is_named_with_its_fix(tmp_path, monkeypatch, name, package):
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=rf"{package} cannot .* pip install 'tremble\[tracking\]'"):
        open_trackers([name], tmp_path, "the-name", CONFIG)


@pytest.mark.slow
def test_importing_tracking_imports_none_of_the_packages():
    code = "import sys, tremble.trackers; print({'tensorboardX', 'wandb', 'mlflow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "set()", result.stderr
