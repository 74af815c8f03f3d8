"""What a sweep will cost: runs, memory, disk and hours, from a short measurement of each kind of run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from tremble import escape
from tremble.replay import readable
from tremble.settings import SettingsError
from tremble.sweeps.folder import PlannedRun
from tremble.sweeps.local import worker_environment
from tremble.sweeps.measure import Measurement
from tremble.training.machine import free_memory

SECONDS = 3.0
"""Of learning that a measurement takes, after compiling."""
MOST_KINDS = 6
"""Kinds of runs that are measured; others are taken to be like them."""
MEMORY_SHARE = 0.9
"""Of the free memory that workers may take."""


@dataclass(frozen=True)
class Kind:
    """Runs of one agent on one environment."""

    agent: str
    env: str
    runs: list[PlannedRun]
    measured: Measurement
    own: bool
    """Whether it was measured itself; otherwise the numbers are those of a similar kind."""

    @property
    def hours(self) -> float:
        """Of all its runs, on one core."""
        steps = sum(run.steps for run in self.runs)
        seconds = steps / self.measured.steps_per_second + len(self.runs) * self.measured.compile_seconds
        return seconds / 3600


@dataclass(frozen=True)
class Estimate:
    """The cost of the runs that are left."""

    kinds: list[Kind]

    @property
    def memory_bytes(self) -> int:
        """Of the largest run."""
        return max((kind.measured.memory_bytes for kind in self.kinds), default=0)

    @property
    def hours(self) -> float:
        """Of all runs, on one core."""
        return sum(kind.hours for kind in self.kinds)

    @property
    def disk_bytes(self) -> int:
        """Of all runs, at most."""
        return sum(len(kind.runs) * kind.measured.disk_bytes for kind in self.kinds)

    def complaints(self, free_disk: int) -> list[str]:
        """What there is no room for."""
        if self.disk_bytes <= free_disk:
            return []
        return [
            f"up to {readable(self.disk_bytes)} of disk, and {readable(free_disk)} are free: `tremble sweep gc` "
            "removes the checkpoints of finished runs, which are most of it"
        ]

    def table(self, jobs: int) -> Table:
        """For the terminal."""
        runs = sum(len(kind.runs) for kind in self.kinds)
        title = f"{runs:,} runs to train, {jobs} at a time: about {duration(3600 * self.hours / jobs)}"
        table = Table("agent", "environment", "runs", "steps/s", "one run", "memory", "disk", title=title)
        for kind in self.kinds:
            cost = kind.measured
            table.add_row(
                escape.console(kind.agent),
                escape.console(kind.env),
                f"{len(kind.runs):,}",
                f"{cost.steps_per_second:,.0f}" + ("" if kind.own else " ?"),
                duration(3600 * kind.hours / len(kind.runs)),
                readable(cost.memory_bytes),
                readable(cost.disk_bytes),
            )
        note = "" if all(kind.own for kind in self.kinds) else "?: not measured, taken from a similar run.  "
        table.caption = f"{note}Disk in all: up to {readable(self.disk_bytes)}; evaluations take time besides."
        return table


def estimate(runs: Sequence[PlannedRun], on_kind: Callable[[str], None] = lambda label: None) -> Estimate:
    """Measure the kinds of runs that are left, at most `MOST_KINDS` of them; ``on_kind`` is told before each."""
    kinds: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in runs:
        kinds.setdefault((run.cell.agent, run.cell.env), []).append(run)
    # One of each agent and of each environment first: what is not measured is taken from those.
    order = sorted(kinds, key=lambda kind: (_place(kind[0], kinds, 0) * _place(kind[1], kinds, 1) > 0, 0))
    measured: dict[tuple[str, str], Measurement] = {}
    for agent, env in order[:MOST_KINDS]:
        on_kind(f"{agent} on {env}")
        measured[agent, env] = measure_in_process(kinds[agent, env][0])
    found = []
    for (agent, env), here in kinds.items():
        own = (agent, env) in measured
        alike = [m for (a, e), m in measured.items() if a == agent or e == env] or [*measured.values()]
        slowest = min(alike, key=lambda m: m.steps_per_second)
        found.append(Kind(agent, env, here, measured[agent, env] if own else slowest, own))
    return Estimate(found)


def _place(name: str, kinds: Iterable[tuple[str, str]], part: int) -> int:
    """The place of an agent (part 0) or environment (part 1) among all of them."""
    return list(dict.fromkeys(kind[part] for kind in kinds)).index(name)


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def jobs_for(wanted: int | None, runs: int, memory_bytes: int) -> int:
    """Processes: one for each core and run, as many as have room in memory; ``wanted`` overrides the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    room = int(MEMORY_SHARE * free_memory() // memory_bytes) if memory_bytes else cores
    return max(1, min(wanted or cores, runs, max(1, room)))


def measure_in_process(run: PlannedRun, seconds: float = SECONDS) -> Measurement:
    """Measure one run as a worker would train it; an error that names it if it cannot be trained."""
    task = json.dumps({"spec": run.spec.as_json(), "seconds": seconds})
    done = subprocess.run(
        [sys.executable, "-m", "tremble.sweeps.measure"],
        input=task,
        capture_output=True,
        text=True,
        env=worker_environment(os.environ),
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SettingsError(f"{run.cell.label} cannot be trained: {last.partition(': ')[2] or last}")
    return Measurement(**json.loads(done.stdout))
