"""Train one run of a sweep that this process has claimed, and write down how it ended."""

from __future__ import annotations

import dataclasses
import errno
import faulthandler
import json
import os
import signal
import socket
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tremble.envs.faults import EnvironmentFaultError
from tremble.records import CheckpointError, WriteError, parse, read_text
from tremble.replay import DivergedError
from tremble.settings import import_named
from tremble.sweep_records import Outcome, State, as_text
from tremble.sweeps.folder import PlannedRun
from tremble.sweeps.sweep import Sweep
from tremble.training.checkpoint import open_log, write_text
from tremble.training.lock import Lock, LockedError
from tremble.training.machine import versions
from tremble.training.result import Run
from tremble.training.run import run_loop

MOST_DEATHS = 8
"""Workers that may die in a row at the same step of a run, before the run is held to be the cause."""
HANGING = 75
"""Exit code of a worker whose run made no step for too long."""
OF_THE_MACHINE = tuple(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "ENOMEM", "EMFILE", "ENFILE")
    if hasattr(errno, name)
)
"""Errors of the system that no run is to blame for."""
SILENT_DEATH = (
    "its worker died {n} times in a row at step {step:,} without a word: killed from outside, out of memory, or a "
    "crash in native code; see workers.log"
)


class Pulse:
    """Called at every step: notes that the run is alive, and says whether it is to stop."""

    def __init__(self, asked: Callable[[], bool]):
        """``asked`` is looked at every second or so."""
        self.asked, self.at = asked, time.monotonic()
        self._looked, self._stop = self.at, False

    def __call__(self) -> bool:
        """Whether to stop."""
        self.at = now = time.monotonic()
        if not self._stop and now - self._looked > 1.0:
            self._looked, self._stop = now, self.asked()
        return self._stop


def train_claimed(run: PlannedRun, sweep: Sweep, lock: Lock, worker: str, asked: Callable[[], bool]) -> Outcome | None:
    """Train or continue a run whose directory this process holds; None if it was asked to stop before the end.

    Faults of the run (its settings, its environment, numbers that are not finite) are outcomes. Faults of the machine
    (a full disk, a lost lease) are raised: the run is not to blame, and goes on elsewhere or later.
    """
    tries = Tries(run)
    if tries.deaths >= MOST_DEATHS:
        died = SILENT_DEATH.format(n=tries.deaths, step=tries.step)
        return _write(run, lock, _outcome(run, worker, "failed", died, tries, (0.0, 0.0), tries.step))
    tries.begin(worker)
    begun, processor, pulse = time.monotonic(), time.process_time(), Pulse(asked)

    def spent() -> tuple[float, float]:
        return time.monotonic() - begun, time.process_time() - processor

    def hang() -> None:
        about = f"no step for {sweep.timeout_minutes:g} minutes"
        try:
            with suppress(Exception):  # the log may be full, or no file
                faulthandler.dump_traceback()  # where it hangs
            _write(run, lock, _outcome(run, worker, "timed out", about, tries, spent(), saved_step(run.directory)))
        finally:
            os._exit(HANGING)  # the environment holds the only thread that could raise

    done = threading.Event()
    watchdog = threading.Thread(target=_watch, args=(pulse, 60 * sweep.timeout_minutes, hang, done), daemon=True)
    watchdog.start()
    try:
        state, cause, step = _train(run, sweep, lock, pulse)
    finally:  # not reached where the process is killed
        done.set()
        watchdog.join()
        with suppress(WriteError):
            tries.end()
    if state is None:
        return None
    return _write(run, lock, _outcome(run, worker, state, cause, tries, spent(), step))


def _train(run: PlannedRun, sweep: Sweep, lock: Lock, pulse: Pulse) -> tuple[State | None, str, int]:
    """State, cause and step at which training ended; None as state where it was asked to stop."""
    try:
        if (there := saved_step(run.directory)) > run.steps:
            return "failed", f"it is there with {there:,} steps: runs can be lengthened, not cut", there
        agent = run.spec.build_agent()
        callback = import_named(sweep.callback) if sweep.callback else None
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            trained = run_loop(
                run.spec,
                agent,
                run.spec.env,
                run.directory,
                checkpoint_every=sweep.checkpoint_every,
                lengthen=recorded_steps(run.directory) not in (None, run.steps),
                lock=lock,
                should_stop=pulse,
                trackers=sweep.track,
                callback=callback,
            )
    except (WriteError, LockedError):
        raise
    except DivergedError as error:
        return "diverged", str(error), saved_step(run.directory)
    except EnvironmentFaultError as error:
        where = "" if error.__cause__ is None else f" ({_where(error.__cause__)})"
        return "failed", f"{error}{where}", saved_step(run.directory)
    except SystemExit as stop:
        if stop.code in (128 + signal.SIGTERM, 128 + signal.SIGINT):  # asked to end; the run is saved
            raise
        return "failed", f"something that it calls ended the process: exit({stop.code})", saved_step(run.directory)
    except Exception as error:
        if any(isinstance(cause, OSError) and cause.errno in OF_THE_MACHINE for cause in (error, error.__cause__)):
            raise
        known = isinstance(error, ValueError | CheckpointError)
        about = str(error) if known else f"{type(error).__name__}: {error} ({_where(error)})"
        return "failed", about, saved_step(run.directory)
    step = trained.agent.counts.transitions
    if trained.stopped is not None:
        return "stopped", trained.stopped.reason, step
    if step < run.steps or (run.spec.final_episodes and not trained.final_rows):
        return None, "", step
    lost = not_finite(trained)
    return ("diverged", lost, step) if lost else ("finished", "", step)


def _where(error: BaseException) -> str:
    """The place that an exception came from."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "nowhere"


def not_finite(run: Run) -> str:
    """What of the end of a run is not a finite number, in words; empty if all is well."""
    rows = [*run.rows[-1:], *run.evaluation_rows[-1:], *run.final_rows[:1]]
    lost = {name: value for row in rows for name, value in row.get("not_finite", {}).items()}
    return f"at its end not finite: {', '.join(sorted(lost)[:6])}" if lost else ""


class Tries:
    """The workers that took a run up, a line each in ``seed-0.tries.jsonl``."""

    def __init__(self, run: PlannedRun):
        """Read them."""
        self._path = run.directory.with_name(f"{run.directory.name}.tries.jsonl")
        self.step = saved_step(run.directory)
        """The step that the run would go on from."""
        text = read_text(self._path) if self._path.exists() else ""
        self._broken = not text.endswith("\n") and text != ""
        rows = [row for line in text.splitlines() if isinstance(row := _row(line), dict)]
        self.count = sum("worker" in row for row in rows)
        """Workers so far."""
        self.deaths = 0
        """Of the newest ones in a row those that died at this step."""
        for row in reversed(rows):
            if "worker" not in row or row.get("step") != self.step:
                break
            self.deaths += 1

    def begin(self, worker: str) -> None:
        """Another one takes it up."""
        self.count += 1
        self._append({"worker": worker, "host": socket.gethostname(), "pid": os.getpid(), "step": self.step})

    def end(self) -> None:
        """It did not die."""
        self._append({"ended": True})

    def _append(self, row: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            with open(open_log(self._path, flags), "w", encoding="utf-8") as file:
                file.write(("\n" if self._broken else "") + json.dumps(row) + "\n")
                self._broken = False
        except OSError as error:
            raise WriteError(f"could not write {self._path}: {error}") from error


def _row(line: str) -> Any:
    """A line; None where a process died while writing it."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def recorded_steps(directory: Path) -> int | None:
    """The length of the run in a directory, as its ``config.json`` says; None if there is none yet."""
    path = directory / "config.json"
    if not path.exists():
        return None
    described = parse(read_text(path), str(path))
    spec = described.get("spec") if isinstance(described, dict) else None
    steps = spec.get("steps") if isinstance(spec, dict) else None
    return steps if isinstance(steps, int) else None


def saved_step(directory: Path) -> int:
    """The step of the newest checkpoint, by its name."""
    names = sorted(path.stem for path in (directory / "checkpoints").glob("step-*.safetensors"))
    number = names[-1].removeprefix("step-") if names else "0"
    return int(number) if number.isdecimal() else 0


def _outcome(
    run: PlannedRun, worker: str, state: State, cause: str, tries: Tries, spent: tuple[float, float], step: int
) -> Outcome:
    seconds, processor = (round(x, 3) for x in spent)
    host = socket.gethostname()
    return Outcome(state, cause, step, seconds, processor, host, worker, versions(), revision(), tries.count)


def _write(run: PlannedRun, lock: Lock, outcome: Outcome) -> Outcome:
    lock.check()
    write_text(run.outcome_file, as_text(dataclasses.asdict(outcome)))
    return outcome


def _watch(pulse: Pulse, most: float, hang: Callable[[], None], done: threading.Event) -> None:
    """Call ``hang`` if there is no pulse for so many seconds; those that the process is suspended for do not count."""
    tick = min(1.0, most / 4)
    silent, seen = 0.0, pulse.at
    while not done.wait(tick):
        silent, seen = (silent + tick if pulse.at == seen else 0.0), pulse.at
        if silent > most:
            hang()


@cache
def revision() -> str | None:
    """The git revision of the directory that this process was started in; None if it is in no repository."""
    try:
        found = [
            subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found[0]} (changed)" if found[1] else found[0]
