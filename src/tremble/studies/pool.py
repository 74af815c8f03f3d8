"""Train many independent runs on all cores: one single-threaded process per core, one run at a time each.

An update of these sizes is mostly single-threaded, so one process per core uses the machine best. Each is kept on its
core: XLA computes in a thread beside Python's, and waking one on another core takes longer than a small network, so
that two runs on CartPole make a third more steps. Results do not depend on the number of processes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tremble.training.spec import RunSpec


class PoolError(RuntimeError):
    """A run failed or a worker died; the message says which and why."""


@dataclass(frozen=True)
class Task:
    """One run and the file its result goes to."""

    spec: RunSpec
    out: Path


def run_tasks(
    tasks: Sequence[Task],
    log: Path,
    jobs: int | None,
    budget_seconds: float | None,
    on_step: Callable[[int, int], None],
    on_done: Callable[[int, float], None],
) -> int:
    """Run the tasks in order and return how many were finished.

    After ``budget_seconds`` no new run is started, but running ones are finished. A failed run stops all and raises.
    ``on_step`` receives the number of a task and its step, ``on_done`` the number of a finished task and its processor
    time in seconds; ``log`` is the file for what workers print.
    """
    jobs = max(1, min(jobs or os.cpu_count() or 1, len(tasks)))
    messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
    with log.open("a") as errors:  # workers have copies of the descriptor
        workers = [_Worker(index, messages, errors, core) for index, core in enumerate(_cores(jobs))]
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    waiting, running, finished = list(range(len(tasks))), 0, 0

    def feed(worker: _Worker) -> int:
        if waiting and (deadline is None or time.monotonic() < deadline):
            number = waiting.pop(0)
            worker.give(number, tasks[number])
            return 1
        return 0

    try:
        running = sum(feed(worker) for worker in workers)
        while running:
            index, message = messages.get()
            if message is None:
                raise PoolError(
                    f"a worker process died (exit code {workers[index].process.poll()}); its standard error is in {log}. "
                    "Finished runs are kept: repeat the command to go on."
                )
            task = message["id"]
            if "error" in message:
                spec = tasks[task].spec
                raise PoolError(f"{spec.agent} on {spec.env}, seed {spec.seed}, failed: {message['error']}")
            if message.get("done"):
                finished += 1
                on_done(task, float(message["seconds"]))
                running += feed(workers[index]) - 1
            else:
                on_step(task, message["step"])
    finally:
        for worker in workers:
            worker.stop()
    return finished


class _Worker:
    """A child process and the thread that reads its messages."""

    def __init__(
        self, index: int, messages: queue.Queue[tuple[int, dict[str, Any] | None]], errors: Any, core: int | None
    ):
        flags = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tremble.studies.worker", *([] if core is None else [str(core)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={
                **os.environ,
                "XLA_FLAGS": flags.strip(),
                "NPROC": "1",  # size of XLA's thread pool; more threads than cores are slower
                "JAX_PLATFORMS": "cpu",
                "PYTHONPATH": os.pathsep.join(filter(None, [_source_root(), os.environ.get("PYTHONPATH", "")])),
                **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")},
            },
        )
        self.stopping = False
        threading.Thread(target=self._listen, args=(index, messages), daemon=True).start()

    def _listen(self, index: int, messages: queue.Queue[tuple[int, dict[str, Any] | None]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            messages.put((index, json.loads(line)))
        if not self.stopping:
            messages.put((index, None))

    def give(self, number: int, task: Task) -> None:
        assert self.process.stdin is not None
        message = {"id": number, "spec": dataclasses.asdict(task.spec), "out": str(task.out)}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.stopping = True
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _cores(jobs: int) -> list[int | None]:
    """A core for each process; None, so that the system chooses, if there are more processes than cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [*cores[:jobs]] if jobs <= len(cores) else [None] * jobs


def _source_root() -> str:
    """The directory of this package, so that workers import the same one."""
    return str(Path(__file__).resolve().parents[2])
