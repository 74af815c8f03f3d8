"""A worker: takes up runs of a sweep, one after the other, until nothing is left.

    python -m tremble.sweeps.worker DIR [--shard 3/16] [--core 1] ...

Every engine starts this program. It talks to nobody: what there is to do stands in the sweep's directory, and so does
what others do. Any number of workers on any number of machines may work on one directory; each run is claimed by the
lock of its own directory, and one whose worker died is taken up where its last checkpoint is. Compiled programs stay
in the process, so runs that differ in seeds and traced settings compile once.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import jax

from tremble import escape
from tremble.records import CheckpointError
from tremble.settings import SettingsError
from tremble.sweep_records import Outcome
from tremble.sweeps.claimed_run import train_claimed
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.training.compilation_cache import enable_compilation_cache
from tremble.training.lock import Claims, LockedError

CANNOT_GO_ON = 74
"""Exit code of a worker that could not write, or whose directory is not as it must be: others would fail too."""
MAX_MEMORY_MAPPINGS = 30_000
"""Number of memory mappings above which a worker drops its compiled programs."""
POLL_SECONDS = 1.0


def forget_programs(more_than: int = MAX_MEMORY_MAPPINGS) -> bool:
    """Drop all compiled programs if they use too many memory mappings; returns whether it did.

    XLA maps memory for every kernel, one to two thousand mappings for a run, and Linux allows a process 65,530, so a
    sweep of fifty different cells would fail with "Cannot allocate memory". Programs are reloaded from the disk cache.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") <= more_than:
        return False
    jax.clear_caches()
    return True


class Worker:
    """Works on a sweep's directory until nothing is left, or until it is asked to stop."""

    def __init__(
        self,
        folder: SweepFolder,
        shard: tuple[int, int] = (0, 1),
        asked: Callable[[], bool] = lambda: False,
        until: float | None = None,
        job: str = "",
        token: str | None = None,
    ):
        """``shard`` (k, n): begin with every n-th run, from the k-th on. After ``until`` (monotonic) begin no more.

        ``token`` is that of the folder when its engine began, so that no request to stop is missed meanwhile.
        """
        self.folder, self.sweep, self._shard, self._until = folder, folder.read(), shard, until
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._claims, self._done = Claims(job=job), set[str]()
        self._runs: list[PlannedRun] | None = None
        """All runs in the order of work; known once and for all where there is no search."""
        self._token, self._asked_elsewhere = folder.stop_token() if token is None else token, asked

    def asked(self) -> bool:
        """Whether somebody asked it to stop since its engine began."""
        return self.folder.stop_token() != self._token or self._asked_elsewhere()

    def work(self, wait: bool = True) -> Iterator[tuple[PlannedRun, Outcome]]:
        """Train what nobody else trains, yielding each run with its outcome.

        With ``wait`` it stays while others train, to take over from those that die.
        """
        while not self.asked():
            found = None
            for run in self.left():
                if self.asked() or (self._until is not None and time.monotonic() > self._until):
                    return
                found = self.take(run)
                if found is not None:
                    yield run, found
                    break  # from the beginning: a search may have asked for new runs
            if found is None:
                if not wait or not self.left():
                    return
                time.sleep(POLL_SECONDS)

    def take_or_wait(self, run: PlannedRun) -> Outcome | None:
        """Train one run, or wait for who does; None if it was asked to stop before there was an outcome."""
        while not self.asked():
            if (outcome := run.outcome()) is not None or (outcome := self.take(run)) is not None:
                return outcome
            time.sleep(POLL_SECONDS)
        return None

    def left(self) -> list[PlannedRun]:
        """The runs that may need work, as far as this worker knows, those of its shard first."""
        if self._runs is None or self.sweep.search is not None:
            runs, _ = self.folder.planned(self.sweep, ask=True)
            number, n = self._shard
            first = [k % n == number for k in range(len(runs))]
            self._runs = [run for run, _ in sorted(zip(runs, first, strict=True), key=lambda pair: not pair[1])]
        return [run for run in self._runs if run.name not in self._done]

    def take(self, run: PlannedRun) -> Outcome | None:
        """Train a run if nobody else does; None if somebody does, or if it was asked to stop meanwhile."""
        if run.outcome() is not None:
            self._done.add(run.name)
            return None
        run.require_folders()
        lock = self._claims.take(run.directory)
        if lock is None:
            return None
        try:
            if run.outcome() is not None:  # somebody finished it between the look and the claim
                return None
            forget_programs()
            with suppress(FileNotFoundError):
                os.remove(run.outcome_file)  # of fewer steps
            outcome = train_claimed(run, self.sweep, lock, self.name, self.asked)
        except LockedError as error:  # suspended for longer than its lease: somebody else trains this run by now
            say(f"{self.name}  {error}")
            return None
        finally:
            lock.release()
        if outcome is not None:
            self._done.add(run.name)
        return outcome


def say(text: str) -> None:
    """A line for the log of workers, if there is room for it on the disk."""
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def parse_shard(text: str) -> tuple[int, int]:
    """``3/16`` as (2, 16): the third of sixteen."""
    number, _, n = text.partition("/")
    if not (number.isdecimal() and n.isdecimal() and 1 <= int(number) <= int(n)):
        raise ValueError(f"{text!r} is no shard: write 3/16 for the third of sixteen")
    return int(number) - 1, int(n)


def main(arguments: Sequence[str] | None = None) -> None:
    """The program that engines start."""
    parser = argparse.ArgumentParser(prog="python -m tremble.sweeps.worker")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=Path, help="where run directories are, if not in DIRECTORY/runs")
    parser.add_argument("--shard", type=parse_shard, default=(0, 1))
    parser.add_argument("--core", type=int, help="stay on this core")
    parser.add_argument("--parent", type=int, help="end when this process is gone")
    parser.add_argument("--minutes", type=float, help="begin no run after so many minutes")
    parser.add_argument("--no-wait", action="store_true", help="end when others train all that is left")
    parser.add_argument("--token", help="the directory's when the engine began: it changes when somebody asks to stop")
    options = parser.parse_args(arguments)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    sys.path.append(str(Path.cwd()))  # so that module:name may be a file in the current directory
    signal.signal(signal.SIGTERM, raise_terminated)
    faulthandler.enable()  # a crash in native code leaves the Python stack in the log
    enable_compilation_cache()

    def orphaned() -> bool:
        return options.parent is not None and os.getppid() != options.parent

    until = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    folder = SweepFolder(options.directory, options.runs)
    try:
        worker = Worker(folder, options.shard, orphaned, until, token=options.token)
        for run, outcome in worker.work(wait=not options.no_wait):
            about = f": {escape.plain(outcome.cause)}" if outcome.cause else ""
            say(f"{worker.name}  {run.name}  {outcome.state}{about}")
    except (CheckpointError, SettingsError, OSError) as error:  # of the directory; those of a run are its outcome
        say(f"{socket.gethostname()}-{os.getpid()}  {error}")
        os._exit(CANNOT_GO_ON)  # nothing is left to clean up, and a flush of the log could fail on a full disk


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """A handler of SIGTERM: an exception, so that what is held is released; a run that trains is saved before."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
