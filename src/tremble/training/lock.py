"""One writer per run directory, on one machine or several that share a disk: a lock with a lease.

The lock is a file ``lock-N.json`` whose number only ever grows. Whoever creates ``lock-(N+1)`` exclusively owns the
directory, provided no higher number exists. The owner raises a counter in its file every two seconds (a fifteenth of
the lease). Others compare the file's bytes by their own monotonic clock, so the clocks of two machines need not agree:
a file that did not change for the length of the lease belongs to an owner that is dead or suspended, and the next
number may be claimed. A process of the same machine that no longer exists is recognised at once.

An owner that was suspended for longer than its lease finds a higher number when it wakes: `Lock.check`, called before
every write, then raises. Between that check and the write itself nothing can be promised.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tremble import escape
from tremble.records import CheckpointError, WriteError

LEASE_SECONDS = float(os.environ.get("TREMBLE_LEASE_SECONDS", "30"))
"""How long an owner may be silent before others take the directory over."""
RENEWALS = 15
"""Renewals within a lease."""
_NAME = re.compile(r"lock-(\d{1,15})\.json")
_SIZE = 512
"""Bytes of a lock file; always the same, so that a renewal is one write in place."""


class LockedError(CheckpointError):
    """Somebody else trains in the directory, or took it over; the message says who."""


def machine_id() -> str:
    """Tells machines, reboots and containers apart: process numbers mean something only within one of them."""
    parts = [socket.gethostname()]
    for read in (lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8], _process_namespace):
        with contextlib.suppress(OSError):
            parts.append(read())
    return "/".join(parts)


def _process_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


class Lock:
    """Ownership of a run directory. `acquire` returns one; `release` gives it up."""

    def __init__(self, path: Path, number: int, file: int, lease: float, job: str = ""):
        """Use `acquire`."""
        self._path, self._number, self._file, self._lease = path, number, file, lease
        self._owner: dict[str, Any] = {"id": uuid.uuid4().hex, "machine": machine_id(), "pid": os.getpid()}
        if job:
            self._owner["job"] = job[:100]
        self._doing: dict[str, Any] = {"doing": "starting", "step": 0}
        self._count = 0
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._write()
        self._thread = threading.Thread(target=self._renew, name="tremble-lock", daemon=True)
        self._thread.start()

    @staticmethod
    def acquire(directory: Path, lease: float | None = None) -> Lock:
        """Own the directory, or raise a `LockedError` that names the owner. Waits for at most one lease."""
        claims = Claims(LEASE_SECONDS if lease is None else lease)
        while (lock := claims.take(directory)) is None:
            if (owner := claims.alive(directory)) is not None:
                raise LockedError(f"{directory} is in use: {owner}")
            time.sleep(min(0.2, claims.lease / RENEWALS / 4))
        return lock

    def check(self) -> None:
        """Raise unless this process still owns the directory."""
        newest = _newest(self._path.parent)
        if newest != self._number:
            content = _read(self._path.parent / f"lock-{newest}.json")
            who = "it was removed" if content is None else describe_owner(content)
            raise LockedError(
                f"this process no longer owns {self._path.parent} (it did not respond for longer than the lease of "
                f"{self._lease:g} s): {who}. It stops without writing anything more."
            )

    def show(self, doing: str, step: int) -> None:
        """What the run is doing, for whoever reads the lock; written with the next renewal."""
        self._doing = {"doing": doing, "step": step}

    def release(self) -> None:
        """Give the directory up. The file stays, so that numbers never repeat."""
        self._stop.set()
        self._thread.join()
        with self._writing:
            if self._file >= 0:
                self._owner["released"] = True
                self._write()
                os.close(self._file)
                self._file = -1

    def _renew(self) -> None:
        while not self._stop.wait(self._lease / RENEWALS):
            with self._writing, contextlib.suppress(OSError):  # a full disk must not end the run here
                self._count += 1
                self._write()

    def _write(self) -> None:
        fields = {**self._owner, "count": self._count, **self._doing, "time": round(time.time(), 1)}
        os.pwrite(self._file, json.dumps(fields)[: _SIZE - 1].ljust(_SIZE - 1).encode() + b"\n", 0)


@dataclass
class _Seen:
    """A lock file as it was first seen, and when by this process's clock."""

    number: int
    content: bytes | None
    since: float
    changed: bool = False
    """Whether its owner wrote to it meanwhile."""


class Claims:
    """Takes directories that nobody holds, without waiting; watches the locks of those that somebody does.

    A directory whose lock does not change for the length of the lease, in the eyes of this object, counts as left.
    ``job`` names a piece of work that is started again after a crash: a lock of the same job is taken over at once.
    """

    def __init__(self, lease: float | None = None, job: str = ""):
        """Nothing is watched yet."""
        self.lease, self.job = LEASE_SECONDS if lease is None else lease, job
        self._seen: dict[Path, _Seen] = {}

    def take(self, directory: Path) -> Lock | None:
        """Own the directory; None while somebody else does, or may do."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            number = _newest(directory)
            content = None if number == 0 else _read(directory / f"lock-{number}.json")
            seen, now = self._seen.get(directory), time.monotonic()
            if seen is None or (seen.number, seen.content) != (number, content):
                wrote = seen is not None and seen.number == number and None not in (seen.content, content)
                seen = self._seen[directory] = _Seen(number, content, now, wrote)
            free = number == 0 or (content is not None and _is_free(content, self.job))
            if not free and now - seen.since <= self.lease:
                return None
            lock = _claim(directory, number + 1, self.lease, self.job)
        except OSError as error:
            raise WriteError(f"cannot write to {directory}: {error}") from error
        if lock is not None:
            del self._seen[directory]
        return lock

    def alive(self, directory: Path) -> str | None:
        """The owner in words, if it wrote to its lock since `take` first saw it."""
        seen = self._seen.get(directory)
        return describe_owner(seen.content) if seen is not None and seen.changed and seen.content else None


def is_held(directory: Path) -> bool:
    """Whether somebody holds the directory, as far as one look tells: a dead owner elsewhere counts for two leases."""
    number = _newest(directory)
    path = directory / f"lock-{number}.json"
    content = _read(path) if number else None
    if content is None or _is_free(content):
        return False
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime < 2 * LEASE_SECONDS
    return False


def progress(directory: Path) -> dict[str, Any]:
    """What the newest lock of a directory says: ``step``, ``doing``, ``pid``, ``machine``; empty if there is none."""
    number = _newest(directory)
    content = _read(directory / f"lock-{number}.json") if number else None
    return (_parse(content) or {}) if content is not None else {}


def describe_owner(content: bytes) -> str:
    """Who holds a lock, from the bytes of its file."""
    fields = _parse(content)
    if fields is None:
        return "its lock file cannot be read"
    pid, machine, step = (escape.plain(fields.get(name))[:80] for name in ("pid", "machine", "step"))
    return f"process {pid} on {machine.split('/')[0]} trains in it (step {step})"


def _claim(directory: Path, number: int, lease: float, job: str = "") -> Lock | None:
    """The lock of this number; None if somebody else was faster."""
    if number >= 10**15:
        raise CheckpointError(f"{directory} has a lock file with an impossible number: remove {directory}/lock-*.json")
    path = directory / f"lock-{number}.json"
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except FileExistsError:
        return None
    try:
        lock = Lock(path, number, file, lease, job)
    except OSError:  # a full disk: an empty file would keep others away for a lease
        os.close(file)
        path.unlink(missing_ok=True)
        raise
    if _newest(directory) != number:  # a higher one exists: this number was used before and cleared away
        lock.release()
        path.unlink(missing_ok=True)
        return None
    for older in range(max(1, number - 8), number):
        with contextlib.suppress(OSError):
            (directory / f"lock-{older}.json").unlink()
    return lock


def _newest(directory: Path) -> int:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(m[1]) for name in names if (m := _NAME.fullmatch(name))), default=0)


def _read(path: Path) -> bytes | None:
    """The bytes of a lock file; None if it is gone or not a regular file."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        return os.read(file, _SIZE)
    except OSError:
        return None
    finally:
        os.close(file)


def _parse(content: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _is_free(content: bytes, job: str = "") -> bool:
    """Whether the owner released it, was a process of this machine that is gone, or an earlier try of the same job."""
    fields = _parse(content)
    if fields is None:
        return False  # perhaps being written: its bytes decide, as for any other
    if fields.get("released") is True or (job and fields.get("job") == job[:100]):
        return True
    pid = fields.get("pid")
    if fields.get("machine") != machine_id() or type(pid) is not int or not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
