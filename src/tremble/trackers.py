"""Where numbers go while a run trains: TensorBoard, Weights & Biases, MLflow, trackio, several of them, or nowhere.

Tracking only looks on. Nothing comes back from it into the run, and an error while writing costs the tracker, not
the run. The packages are imported when a tracker is opened: without one, none of them needs to be installed.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tremble.settings import SettingsError, import_optional, nearest

PROJECT = "tremble"


@runtime_checkable
class Sink(Protocol):
    """Takes one row of numbers at a time. After a resume, steps may come again that were written before."""

    def write(self, step: int, row: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """An event file in a directory.

    When the step goes back, TensorBoard is told to forget what it was shown at that step and later, and the curves
    go on from there. The event files keep everything.
    """

    def __init__(self, directory: Path) -> None:
        # Not SummaryWriter: its thread dies of the first error, after which writing waits for it forever.
        files = _package("tensorboardX.event_file_writer")
        self._event = _package("tensorboardX.proto.event_pb2")
        self._summary = _package("tensorboardX.proto.summary_pb2").Summary
        directory.mkdir(parents=True, exist_ok=True)
        # The name is otherwise only good to a second, and a second file of the same name would replace the first.
        self._file = files.EventsWriter(str(directory / "events"), f".{time.time_ns()}.{os.getpid()}")
        self._last_step = math.inf  # the first row counts as going back: an earlier process may have been further

    def write(self, step: int, row: Mapping[str, float]) -> None:
        if step <= self._last_step:
            start = self._event.SessionLog(status=self._event.SessionLog.START)
            self._put(step, session_log=start)
        self._last_step = step
        values = [self._summary.Value(tag=name, simple_value=float(value)) for name, value in row.items()]
        self._put(step, summary=self._summary(value=values))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _put(self, step: int, **content: Any) -> None:
        self._file.write_event(self._event.Event(wall_time=time.time(), step=step, **content))


class WeightsAndBiases:
    """A run of Weights & Biases, kept in `directory`/wandb; `wandb sync` uploads it. WANDB_MODE=online does so at once.

    Every other variable of wandb's own (WANDB_PROJECT, WANDB_SILENT, ...) counts as well. A resume starts another run
    with the same name. When the step goes back within one, the row is kept as well: charts are drawn against the
    number "step" of each row, not against wandb's own count, which would refuse it.
    """

    def __init__(self, directory: Path, name: str, config: Mapping[str, Any]) -> None:
        wandb = _package("wandb")
        directory.mkdir(parents=True, exist_ok=True)
        # What is printed belongs to the command line, so wandb neither adds to it nor records it.
        defaults = {"mode": "offline", "project": PROJECT, "silent": True, "console": "off"}
        # Looked up here: wandb reads its variables only once per process, and settings given to it outdo them.
        chosen = {key: os.environ.get(f"WANDB_{key.upper()}") or default for key, default in defaults.items()}
        self._run = wandb.init(
            dir=str(directory),
            name=name,
            config=dict(config),
            settings=wandb.Settings(**chosen),
            reinit="create_new",  # several runs may be open in one process
        )
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log({name: float(value) for name, value in row.items()} | {"step": step})

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run of MLflow: in the file mlflow.db of a directory (a path), or wherever a tracking URI (a string) points.

    A resume starts another run with the same name. When the step goes back within one, both values of that step are
    kept, told apart by their time. A new mlflow.db takes some seconds to set up, and a server that stops answering
    holds a run up for some minutes before MLflow gives up (MLFLOW_HTTP_REQUEST_MAX_RETRIES makes that shorter).
    """

    def __init__(self, directory_or_uri: Path | str, name: str, config: Mapping[str, Any]) -> None:
        mlflow = _package("mlflow")
        self._entities = _package("mlflow.entities")
        artifacts = None
        if isinstance(directory_or_uri, Path):
            directory = directory_or_uri.resolve()
            directory.mkdir(parents=True, exist_ok=True)
            directory_or_uri, artifacts = f"sqlite:///{directory / 'mlflow.db'}", (directory / "mlflow").as_uri()
        self._client = mlflow.MlflowClient(tracking_uri=directory_or_uri)
        self._id = self._client.create_run(self._experiment(artifacts), run_name=name).info.run_id
        self._answers = True
        params = [self._entities.Param(key, str(value)) for key, value in config.items()]
        for start in range(0, len(params), 100):  # the most that MLflow takes at once
            self._client.log_batch(self._id, params=params[start : start + 100])

    def write(self, step: int, row: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        metrics = [self._entities.Metric(name, float(value), now, step) for name, value in row.items()]
        try:
            self._client.log_batch(self._id, metrics=metrics)
        except Exception:
            self._answers = False
            raise

    def close(self) -> None:
        if self._answers:  # waiting once more for a server that is gone would hold the run up again
            self._client.set_terminated(self._id)

    def _experiment(self, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        try:
            return str(self._client.create_experiment(name, artifact_location=artifacts))
        except _package("mlflow.exceptions").MlflowException as error:
            # Asked afterwards, not before: another run may create it in between.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return str(self._client.get_experiment_by_name(name).experiment_id)


class Trackio:
    """A run of trackio, in its own folder (TRACKIO_DIR), where `trackio show` finds it.

    TRACKIO_SERVER_URL or TRACKIO_SPACE_ID send it elsewhere. A resume starts another run with the same name. When the
    step goes back within one, both rows are kept.
    """

    def __init__(self, directory: Path, name: str, config: Mapping[str, Any]) -> None:
        self._trackio = _package("trackio")
        options = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        with redirect_stdout(StringIO()):  # what is printed belongs to the command line
            self._run = self._trackio.init(project=PROJECT, name=name, config=dict(config), **options)

    def write(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log({name: float(value) for name, value in row.items()}, step=step)

    def close(self) -> None:
        with redirect_stdout(StringIO()):
            self._run.finish()
            if self._trackio.context_vars.current_run.get() is self._run:
                self._trackio.finish()  # otherwise it says so once more at the end of the process


class Trackers:
    """Writes to every sink; one that fails is reported once, closed and left out. `Trackers([])` writes nowhere."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._open = list(sinks)

    def write(self, step: int, row: Mapping[str, float]) -> None:
        for sink in list(self._open):
            try:
                sink.write(step, row)
            except Exception as error:
                _warn(f"{type(sink).__name__} failed at step {step} and is closed; the run goes on: {error!r}")
                self._open.remove(sink)
                _close(sink, report=False)

    def close(self) -> None:
        while self._open:
            _close(self._open.pop(), report=True)


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Sink]] = {
    "tensorboard": lambda directory, name, config: TensorBoard(directory / "tensorboard"),
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
    "mlflow": lambda directory, name, config: MLflow(os.environ.get("MLFLOW_TRACKING_URI") or directory, name, config),
}


def open_trackers(names: Sequence[str], directory: Path, name: str, config: Mapping[str, Any]) -> Trackers:
    """Open trackers by name for the run `name`, which keeps its files in `directory`. No names: nothing is tracked."""
    for tracker in names:
        if tracker not in TRACKERS:
            raise SettingsError(f"there is no tracker {tracker!r}; {nearest(tracker, TRACKERS)}")
    opened: list[Sink] = []
    for tracker in dict.fromkeys(names):
        try:
            opened.append(TRACKERS[tracker](directory, name, config))
        except Exception as error:
            Trackers(opened).close()
            if isinstance(error, SettingsError):
                raise
            raise SettingsError(f"the tracker {tracker!r} cannot be opened: {error}") from error
    return Trackers(opened)


def _package(module: str) -> Any:
    return import_optional(module, "tracking")


def _close(sink: Sink, report: bool) -> None:
    try:
        sink.close()
    except Exception as error:
        if report:
            _warn(f"{type(sink).__name__} could not be closed: {error!r}")


def _warn(message: str) -> None:
    # Not `warnings`: a filter that turns warnings into errors would end the run.
    print(f"warning: {message}", file=sys.stderr)
