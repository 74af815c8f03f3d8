"""Compiled programs on disk, so that a run does not wait for what an earlier one compiled.

JAX keeps compiled programs in a folder by itself, but it writes files in place, and a limit of the size needs a lock
that every process waits for. A process that is killed in the middle of that leaves a file on which all later ones
report an error. `Programs` is the same cache with files that appear whole: written under another name, renamed, with a
digest of their contents. Nobody waits for anybody. It costs two private names of JAX; where they are missing, or the
folder cannot be used, programs are compiled as if there were no cache.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import jax

from tremble.training.machine import processor, threads, versions

VARIABLE = "TREMBLE_COMPILATION_CACHE"
"""Environment variable: ``off``, or another folder for compiled programs."""
OFF = ("off", "0", "no", "false")
LIMIT_BYTES = 1_000_000_000
"""Size at which the programs that were not used for the longest time are removed. A run has half a megabyte to two."""
KEPT_SHARE = 0.8
"""How much of that stays then."""
DIGEST_BYTES = 32
ABANDONED_SECONDS = 3600.0
"""Age at which a file that was never finished is removed."""


class Unusable(Exception):
    """Why compiled programs cannot be kept."""


def enable_compilation_cache() -> str:
    """Keep what is compiled from now on, and use what is kept; returns where, or why not.

    JAX's own settings win: with ``JAX_COMPILATION_CACHE_DIR`` this does nothing.
    """
    if given := jax.config.values["jax_compilation_cache_dir"]:
        return f"JAX's own, in {given}"
    try:
        programs = Programs(folder())
        from jax._src import compilation_cache

        if not hasattr(compilation_cache, "_cache") or not hasattr(compilation_cache, "_cache_initialized"):
            raise Unusable(f"JAX {jax.__version__} has another kind of cache")
    except (Unusable, ImportError, OSError, RuntimeError) as error:  # the last where there is no home directory
        return f"off: {error}"
    jax.config.update("jax_compilation_cache_dir", str(programs.folder))
    # Reading a program takes a millisecond, compiling the smallest ten.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache._cache = programs  # type: ignore[assignment]
    compilation_cache._cache_initialized = True
    return str(programs.folder)


def folder() -> Path:
    """Where programs go that this jaxlib compiles for this processor. It is made, and nobody else may read it.

    Who can write there can have code executed here, so a folder that is not this user's alone is not used.
    """
    given = os.environ.get(VARIABLE, "")
    if given.lower() in OFF:
        raise Unusable(f"{VARIABLE}={given}")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tremble" / "programs"
    root = Path(given) if given else home
    if not root.is_absolute():
        raise Unusable(f"{root} is no absolute path")
    kind = hashlib.sha256(f"{versions()['jaxlib']} {processor()}".encode()).hexdigest()[:12]
    root.parent.mkdir(parents=True, exist_ok=True)
    for path in (root, root / f"jaxlib-{versions()['jaxlib']}-{kind}"):
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise Unusable(f"{path} is a link or a file")
        if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise Unusable(f"{path} is not for this user alone: chmod 700 {path}, or delete it")
    return path


class Programs:
    """Files of compiled programs, with the interface that JAX calls."""

    def __init__(self, folder: Path, limit: int = LIMIT_BYTES):
        """Files in ``folder``; the limit is for all of its kind beside it together (``jaxlib-*``)."""
        self.folder = self._path = folder
        self._limit, self._room = limit, 0
        self._make_room()

    def get(self, key: str) -> bytes | None:
        """The program of a key; None if it is not there, or damaged."""
        path = self._file(key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        digest, value = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
        with suppress(OSError):  # others may remove the same file
            if hashlib.sha256(value).digest() != digest:
                path.unlink()
                return None
            os.utime(path)  # the most recently used
        return value

    def put(self, key: str, value: bytes) -> None:
        """Keep a program; without a word where that fails, for example on a full disk."""
        path = self._file(key)
        unfinished = path.with_name(f".{path.name[-40:]}.{os.getpid()}-{time.monotonic_ns()}")
        try:
            unfinished.write_bytes(hashlib.sha256(value).digest() + value)
            unfinished.replace(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            return
        self._room -= len(value)
        if self._room < 0:
            self._make_room()

    def _file(self, key: str) -> Path:
        """JAX's key knows the program, flags and devices, but not for how many threads XLA splits the work."""
        return self.folder / f"{key}-{threads()}"

    def _make_room(self) -> None:
        """Remove the files that were not used for the longest time, if all together take more than the limit."""
        found = []
        for path in self.folder.parent.glob("jaxlib-*/*"):
            with suppress(OSError):
                entry = path.lstat()
                if not stat.S_ISREG(entry.st_mode):
                    continue
                if path.name.startswith(".") and time.time() - entry.st_mtime > ABANDONED_SECONDS:
                    path.unlink()
                    continue
                found.append((entry.st_mtime, entry.st_size, path))
        taken = sum(size for _, size, _ in found)
        if taken > self._limit:
            for _, size, path in sorted(found):
                with suppress(OSError):
                    path.unlink()
                taken -= size
                if taken <= KEPT_SHARE * self._limit:
                    break
        self._room = self._limit - taken
