"""Contenders in processes of their own, which take turns.

Each contender is built and warmed up once, in a fresh process: no thread pool of one library disturbs another, and
settings that a library reads at start-up (its threads) can differ. The parent then gives them short turns, round after
round, so that whatever else the machine does hits all of them alike.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",  # the size of XLA's thread pool; the flag alone leaves one thread per core
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Start-up settings that keep JAX and PyTorch to one thread each. XLA still hands parts of a program to a second
thread, so each process is also kept to one core."""
CACHED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
"""Everything compiled is worth keeping."""

REST_SECONDS = 0.01
"""Pause between two turns: threads of the last one may keep spinning for a moment after their work is done."""

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Contender:
    """What a process offers: ``run(case)`` does one turn's work and returns its units (steps, gradients)."""

    run: Callable[[str], int]
    facts: dict[str, Any] = field(default_factory=dict)
    """Anything worth knowing that was found while building and warming up."""


@dataclass(frozen=True)
class Turn:
    """One timed turn of a contender, or of several at once."""

    units: int
    seconds: float
    """From the first start to the last end."""
    cpu_seconds: float

    @property
    def speed(self) -> float:
        """Units per second."""
        return self.units / self.seconds

    @property
    def cores_busy(self) -> float:
        """How many cores worked on average."""
        return self.cpu_seconds / self.seconds


class Team:
    """Processes with the same contender that work at the same time (usually just one)."""

    def __init__(
        self,
        build: Callable[..., Contender],
        each: list[dict[str, Any]],
        *,
        one_thread: bool = False,
        cache: str | None = None,
    ):
        """Start a process per element of ``each`` (keyword arguments of ``build``) and wait until all are warm.

        With a directory as ``cache``, what one of them has compiled with JAX the next ones find there.
        """
        cached = {} if cache is None else CACHED | {"JAX_COMPILATION_CACHE_DIR": cache}
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        with _environment({"JAX_PLATFORMS": "cpu"} | (ONE_THREAD if one_thread else {}) | cached):
            for number, options in enumerate(each):
                ours, theirs = context.Pipe()
                core = number if one_thread else None
                process = context.Process(target=_serve, args=(theirs, build, options, core), daemon=True)
                process.start()
                theirs.close()
                self._pipes.append(ours)
                self._processes.append(process)
        self.facts: list[dict[str, Any]] = [self._receive(pipe) for pipe in self._pipes]

    def turn(self, case: str = "") -> Turn:
        """Let every process work once, together."""
        for pipe in self._pipes:
            pipe.send(case)
        done = [self._receive(pipe) for pipe in self._pipes]
        units, starts, ends, cpu = zip(*done, strict=True)
        return Turn(sum(units), max(ends) - min(starts), sum(cpu))

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()
                process.join()

    @staticmethod
    def _receive(pipe: Any) -> Any:
        try:
            ok, value = pipe.recv()
        except EOFError:
            raise RuntimeError("a benchmark process ended without a word (out of memory?)") from None
        if not ok:
            raise RuntimeError(f"a benchmark process failed:\n{value}")
        return value


class Elsewhere:
    """A contender in an environment of its own: another interpreter runs a script that speaks JSON, line by line."""

    def __init__(self, python: Path, script: Path, options: dict[str, Any]):
        """Start it and wait until it is warm."""
        self._process = subprocess.Popen(
            [str(python), "-P", str(script), json.dumps(options)],  # -P: nothing beside the script is a module
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # It may import what `benchmarks` has for it.
            env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        )
        # Read as it comes, so that a library that says much does not fill the pipe and wait.
        self._said: deque[str] = deque(maxlen=30)
        threading.Thread(target=self._listen, daemon=True).start()
        self.facts: list[dict[str, Any]] = [self._receive()]

    def turn(self, case: str = "") -> Turn:
        """Let it work once."""
        assert self._process.stdin is not None
        print(case, file=self._process.stdin, flush=True)
        units, start, end, cpu = self._receive()
        return Turn(units, end - start, cpu)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise RuntimeError(f"a benchmark process failed:\n{''.join(self._said)}")
        return json.loads(line)


def interleave(turns: Mapping[Key, Callable[[], Turn]], rounds: int, tick: Callable[[], None]) -> dict[Key, list[Turn]]:
    """Give each a turn in every round, in an order that is reversed every other round."""
    taken: dict[Key, list[Turn]] = {key: [] for key in turns}
    for number in range(rounds):
        for key in turns if number % 2 == 0 else reversed(turns):
            time.sleep(REST_SECONDS)
            taken[key].append(turns[key]())
        tick()
    return taken


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Environment variables that processes started inside will inherit."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(pipe: Any, build: Callable[..., Contender], options: dict[str, Any], core: int | None) -> None:
    """Main function of a process: build, report the facts, then one turn per message until the pipe closes."""
    try:
        if core is not None and hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[core % len(cores)]})
        contender = build(**options)
        pipe.send((True, contender.facts))
        while True:
            case = pipe.recv()
            start, cpu = time.monotonic(), time.process_time()
            units = contender.run(case)
            # The monotonic clock is the same for all processes, so starts and ends can be compared.
            pipe.send((True, (units, start, time.monotonic(), time.process_time() - cpu)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        return
    except Exception:
        pipe.send((False, traceback.format_exc()))
