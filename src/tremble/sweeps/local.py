"""The local engine: one single-threaded worker process per core, started again where it dies.

An update of these sizes is mostly single-threaded, so one process per core uses the machine best. Each is kept on its
core: XLA computes in a thread beside Python's, and waking one on another core takes longer than a small network, so
that two runs on CartPole make a third more steps. Results do not depend on the number of processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tremble.sweeps.folder import SweepFolder
from tremble.sweeps.worker import CANNOT_WRITE

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
    """A core for each process; None, so that the system chooses, if there are more processes than cores."""
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [*there[:jobs]] if jobs <= len(there) else [None] * jobs


@dataclass
class LocalEngine:
    """The workers of this machine."""

    folder: SweepFolder
    options: LocalOptions
    _workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    deaths: int = 0
    """Workers that were started again."""

    def run(self, look: Callable[[], None], every: float = 1.0) -> None:
        """Work until nothing is left; ``look`` is called now and then, and once more at the end.

        Ctrl-C and SIGTERM ask the workers to save their runs and end, and are raised then; a second one kills them.
        """
        before = signal.getsignal(signal.SIGTERM)
        with (self.folder.directory / LOG).open("ab") as log:
            try:
                signal.signal(signal.SIGTERM, _terminated)
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
        core, (shard, n) = cores(self.options.jobs)[number], self.options.shard
        words = [str(self.folder.directory), "--runs", str(self.folder.runs_directory)]
        words += ["--shard", f"{shard + 1}/{n}", "--parent", str(os.getpid())]
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

    def _check(self, log: IO[bytes]) -> None:
        """Start workers again that died; one that cannot write ends the sweep here."""
        for number, process in list(self._workers.items()):
            code = process.poll()
            if code is None:
                continue
            del self._workers[number]
            if code == CANNOT_WRITE:
                last = (self.folder.directory / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
                raise SweepError(f"{' '.join(last)} Finished runs are kept: repeat the command to go on.")
            if code != 0 and self.folder.plan_file.exists():
                self.deaths += 1
                self._start(number, log)

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


def _terminated(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _source_root() -> str:
    """The directory of this package, so that workers import the same one."""
    return str(Path(__file__).resolve().parents[2])
