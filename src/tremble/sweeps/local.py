"""The local engine: one single-threaded worker process per core, started again where it dies.

An update of these sizes is mostly single-threaded, so one process per core uses the machine best. Each is kept on its
core: XLA computes in a thread beside Python's, and waking one on another core takes longer than a small network, so
that two runs on CartPole make a third more steps. Results do not depend on the number of processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tremble import escape
from tremble.replay import readable
from tremble.sweeps.folder import SweepFolder
from tremble.sweeps.worker import CANNOT_GO_ON, raise_terminated
from tremble.training.checkpoint import open_log

WORKER_ENVIRONMENT = {
    "NPROC": "1",  # size of XLA's thread pool; more threads than cores are slower
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""What all engines set for workers: with equal threads and flags a run has the same bits on all of them."""
XLA_FLAG = "--xla_cpu_multi_thread_eigen=false"
LOG = "workers.log"
"""File of a sweep's directory for what workers print."""
GRACE_SECONDS = 120.0
"""Time that workers have to save their runs when they are asked to end."""
OWN_ERROR = 1
"""Exit code of Python after an exception that nothing caught: not of a run, whose exceptions are its outcome."""
MOST_OWN_ERRORS = 3
"""Workers that may end so, for each that works."""
FULL_BYTES = 10_000_000
"""A disk with less is called full."""
SAID_LAST = 2_000
"""Bytes of the log that a message about a worker is taken from."""


class SweepError(RuntimeError):
    """A sweep cannot go on; the message says why, and what was finished is kept."""


@dataclass
class LocalOptions:
    """How a machine works on a sweep."""

    jobs: int
    shard: tuple[int, int] = (0, 1)
    minutes: float | None = None
    """Begin no run after so many minutes."""
    wait: bool = True
    """Whether to stay while other machines train what is left."""


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a worker."""
    flags = environment.get("XLA_FLAGS", "")
    return {
        **environment,
        **WORKER_ENVIRONMENT,
        "XLA_FLAGS": flags if XLA_FLAG in flags else f"{flags} {XLA_FLAG}".strip(),
        "PYTHONPATH": os.pathsep.join(filter(None, [_source_root(), environment.get("PYTHONPATH", "")])),
    }


def cores(jobs: int) -> list[int | None]:
    """A core for each process, those first that no process is kept on: another sweep may run on this machine.

    None, so that the system chooses, if there are more processes than cores.
    """
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if jobs > len(there):
        return [None] * jobs
    taken = Counter(_kept_cores()) if jobs < len(there) else Counter[int]()
    return [*sorted(there, key=lambda core: taken[core])[:jobs]]


def _kept_cores() -> Iterator[int]:
    """The core of every process that is kept on one."""
    for name in filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError):  # it ended meanwhile
            kept = os.sched_getaffinity(int(name))
            if len(kept) == 1 and Path(f"/proc/{name}/cmdline").read_bytes():  # the kernel's own threads have none
                yield from kept


@dataclass
class LocalEngine:
    """The workers of this machine."""

    folder: SweepFolder
    options: LocalOptions
    _workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    deaths: int = 0
    """Workers that were started again."""
    _own_errors: int = 0
    _token: str = ""
    _cores: list[int | None] = field(default_factory=list)

    def run(self, look: Callable[[], None], every: float = 1.0) -> None:
        """Work until nothing is left; ``look`` is called now and then, and once more at the end.

        Ctrl-C and SIGTERM ask the workers to save their runs and end, and are raised then; a second one kills them.
        """
        before, self._token = signal.getsignal(signal.SIGTERM), self.folder.stop_token()
        self._cores = cores(self.options.jobs)
        with open(open_log(self.folder.directory / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
            try:
                signal.signal(signal.SIGTERM, raise_terminated)
                for number in range(self.options.jobs):
                    self._start(number, log)
                while self._workers:
                    look()
                    time.sleep(every)
                    self._check(log)
                look()
            except BaseException:
                self._end()
                raise
            finally:
                signal.signal(signal.SIGTERM, before)

    def _start(self, number: int, log: IO[bytes]) -> None:
        core, (shard, n) = self._cores[number], self.options.shard
        words = [str(self.folder.directory), "--runs", str(self.folder.runs_directory)]
        words += ["--shard", f"{shard + 1}/{n}", "--parent", str(os.getpid()), "--token", self._token]
        words += [] if core is None else ["--core", str(core)]
        words += [] if self.options.wait else ["--no-wait"]
        if self.options.minutes is not None:
            words += ["--minutes", str(max(0.0, self.options.minutes - (time.monotonic() - self._begun) / 60))]
        self._workers[number] = subprocess.Popen(
            [sys.executable, "-m", "tremble.sweeps.worker", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=worker_environment(os.environ),
            start_new_session=True,  # Ctrl-C is for this process, which asks the workers
        )
        if core is not None:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self._workers[number].pid, {core})  # at once, so that other engines see it

    def _check(self, log: IO[bytes]) -> None:
        """Start workers again that died; one that cannot go on ends the sweep here."""
        for number, process in list(self._workers.items()):
            code = process.poll()
            if code is None:
                continue
            del self._workers[number]
            self._own_errors += code == OWN_ERROR
            if code == CANNOT_GO_ON or self._own_errors > MOST_OWN_ERRORS * self.options.jobs:
                kept = "Finished runs are kept: repeat the command to go on"
                raise SweepError(f"a worker cannot go on: {self._said_last()}. {self._room()}{kept}.")
            if code != 0 and self.folder.plan_file.exists():
                self.deaths += 1
                self._start(number, log)

    def _said_last(self) -> str:
        """The last line in the log of workers."""
        try:
            with open(self.folder.directory / LOG, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - SAID_LAST))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        return escape.plain(lines[-1]).rstrip(".") if lines else "it could not even say why"

    def _room(self) -> str:
        """What a full disk needs, if that is what the disk is: workers may not have been able to write it."""
        free = shutil.disk_usage(self.folder.directory).free
        return "" if free > FULL_BYTES else f"{readable(free)} are free on its disk: make room. "

    def _end(self) -> None:
        """Ask all workers to save and end; kill them at a second signal, or when their time is over."""
        for process in self._workers.values():
            process.send_signal(signal.SIGTERM)
        try:
            end = time.monotonic() + GRACE_SECONDS
            for process in self._workers.values():
                process.wait(max(0.1, end - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
            for process in self._workers.values():
                process.kill()


def _source_root() -> str:
    """The directory of this package, so that workers import the same one."""
    return str(Path(__file__).resolve().parents[2])
