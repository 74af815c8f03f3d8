"""Faults for sweeps: each function disturbs a sweep, lets the same command finish it, and compares its files."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faulty_envs import MARKS
from tests.sweep_kit import (
    Command,
    compare,
    environment,
    files_of_sweep,
    lock_holders,
    outcomes_of,
    ray_cluster,
    run,
    run_of,
    start,
)

LEASE = 6.0
"""Seconds; workers of the tests take over what is left behind after so long."""
SMALL = {"widths": [16], "batch_size": 16, "start_steps": 60}
FAULTY = "tests.faulty_envs:Faulty"
HEALTHY = (("qrdqn", "CartPole-v1", 1), ("pqr", "nchain", 4), ("iqn", FAULTY, 1))
"""Agent, environment, length in units of the setting's."""
CAUSES = {
    "raise": ("failed", "RuntimeError: the simulator crashed"),
    "os_error": ("failed", "OSError: the simulator lost its connection"),
    "nan": ("failed", "gave nan as reward"),
    "inf": ("failed", "gave inf as reward"),
    "sys_exit": ("failed", "ended the process"),
    "exit": ("failed", "its worker died 8 times in a row"),
    "crash": ("failed", "its worker died 8 times in a row"),
    "hang": ("timed out", "no step for"),
}
"""State and a part of the cause, by fault of the environment."""


@dataclass(frozen=True)
class Cell:
    """A cell of a sweep file."""

    label: str
    agent: str
    env: str
    steps: int
    env_options: dict[str, Any] = field(default_factory=dict)
    agent_options: dict[str, Any] = field(default_factory=lambda: dict(SMALL))


def write_sweep(path: Path, cells: Sequence[Cell], seeds: int, **top: Any) -> Path:
    """Write a sweep file."""
    from tremble.sweeps.sweep_file import _toml

    usual = {"record_every": 100, "evaluate_every": 500, "evaluate_episodes": 2, "final_episodes": 3}
    lines = [f"{k} = {_toml(v)}" for k, v in (usual | {"seeds": seeds, "checkpoint_every": 200} | top).items()]
    for cell in cells:
        lines += ["[[cells]]", *(f"{name} = {_toml(value)}" for name, value in vars(cell).items() if value != {})]
    path.write_text("\n".join(lines) + "\n")
    return path


@dataclass(frozen=True)
class Row:
    """What came of one kind of fault."""

    fault: str
    times: int
    happened: str
    runs: int
    different: list[str]
    """Files that differ from the undisturbed sweep's."""


class Setting:
    """The sweep that is disturbed, and its files without a disturbance."""

    def __init__(
        self, root: Path, steps: int, seeds: int, seed: int = 0, healthy: Sequence[Any] = HEALTHY, jobs: int = 2
    ):
        """Run it once, undisturbed. ``steps`` is the length of its runs, ``jobs`` the number of local workers."""
        self.root, self.rng, self.jobs = root, random.Random(seed), jobs
        self.steps, self.seeds = steps, seeds
        self.variables = {"TREMBLE_COMPILATION_CACHE": str(root / "programs"), "TREMBLE_LEASE_SECONDS": str(LEASE)}
        self.cells = [Cell(f"{agent} | {env}", agent, env, n * steps) for agent, env, n in healthy]
        self.file = write_sweep(root / "sweep.toml", self.cells, seeds)
        self._number = 0
        begin = time.monotonic()
        whole = self.place()
        self.finish(whole)
        self.seconds = time.monotonic() - begin
        """That the whole sweep takes."""
        self.files = files_of_sweep(whole)
        self.runs = sorted({run_of(name) for name in self.files})

    def place(self) -> Path:
        """A new directory."""
        self._number += 1
        return self.root / f"sweep-{self._number}"

    def words(self, directory: Path, *more: object, file: Path | None = None) -> tuple[object, ...]:
        """The command."""
        engine = more if "--engine" in more else ("--jobs", self.jobs, *more)
        return ("sweep", file or self.file, "--out", directory, "--no-measure", *engine)

    def start(self, directory: Path, *more: object, **variables: str) -> Command:
        """The command, under way."""
        return start(*self.words(directory, *more), **self.variables | variables)

    def finish(self, directory: Path, *more: object, file: Path | None = None, **variables: str) -> str:
        """The same command to its end."""
        code, said = run(*self.words(directory, *more, file=file), **self.variables | variables)
        if code:
            raise RuntimeError(f"the sweep ended with {code}: {said}")
        return said

    def row(self, fault: str, times: int, happened: str, *directories: Path) -> Row:
        """Compare finished sweeps with the undisturbed one."""
        found = [compare(self.files, files_of_sweep(directory), self.runs) for directory in directories]
        different = [name for one in found for name in one.different]
        unfinished = [
            f"{name} {outcome['state']}"
            for directory in directories
            for name, outcome in outcomes_of(directory).items()
            if name in self.runs and outcome["state"] != "finished"
        ]
        return Row(fault, times, happened, sum(one.runs for one in found), different + unfinished)

    def pause(self, least: float = 0.0, most: float = 1.0) -> None:
        """Until a random moment, as parts of the time that the whole sweep takes."""
        time.sleep(self.rng.uniform(least, most) * self.seconds)

    def planned(self, directory: Path) -> list[Path]:
        """Write the plan without starting anything; the run directories."""
        from tremble.sweeps.folder import SweepFolder
        from tremble.sweeps.sweep_file import read_sweep

        folder, sweep = SweepFolder(directory), read_sweep(self.file)
        folder.write(sweep)
        return [each.directory for each in folder.planned(sweep)[0]]


def workers_of(command: Command) -> list[int]:
    """Process numbers of the workers that a command started."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if parent == command.process.pid and b"tremble.sweeps.worker" in words:
            found.append(int(name))
    return found


def until(true: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    """Wait."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds:.0f} s in vain until {what}")
        time.sleep(0.1)


def until_training(command: Command, directory: Path) -> bool:
    """Wait until somebody trains; whether the command still runs."""
    until(lambda: not command.running or bool(lock_holders(directory)), "a run was claimed")
    return command.running


def until_nobody_trains(directory: Path) -> None:
    """Wait until no lock is held by a process that lives."""
    until(lambda: not lock_holders(directory), "the workers ended by themselves")


# --- signals ----------------------------------------------------------------------------------------------------------


def kill_workers(setting: Setting, times: int = 20, *engine: object) -> Row:
    """SIGKILL for a random process that holds a run, again and again."""
    struck, directories = 0, []
    while struck < times:
        directories.append(setting.place())
        command = setting.start(directories[-1], *engine)
        while until_training(command, directories[-1]):
            setting.pause(0.02, 0.15)
            holders = sorted(lock_holders(directories[-1]).values())
            if struck < times and holders:
                struck += _signal(setting.rng.choice(holders), signal.SIGKILL)
            if struck == times:
                break
        said = command.wait()
        if command.process.returncode:
            raise RuntimeError(said)
    by = "Ray" if engine else "the command"
    return setting.row(
        f"SIGKILL of a worker{' of Ray' if engine else ''}", struck, f"started again by {by}", *directories
    )


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def disturb_driver(
    setting: Setting,
    fault: str,
    strike: Callable[[Command, Path], None],
    codes: tuple[int, ...],
    times: int,
    *engine: Any,
) -> Row:
    """End the command at random moments and repeat it; its workers end by themselves."""
    struck, codes_seen, slowest, directories = 0, set(), 0.0, [setting.place()]
    while struck < times:
        command = setting.start(directories[-1], *engine)
        if until_training(command, directories[-1]):
            setting.pause(0.0, 0.25)
        if not command.running:  # it was done before: another sweep
            command.wait()
            directories.append(setting.place())
            continue
        strike(command, directories[-1])
        said, begin = command.wait(), time.monotonic()
        if command.process.returncode not in codes:
            raise RuntimeError(f"{fault}: ended with {command.process.returncode}: {said}")
        codes_seen.add(command.process.returncode)
        until_nobody_trains(directories[-1])
        slowest = max(slowest, time.monotonic() - begin)
        struck += 1
    setting.finish(directories[-1], *engine)
    ended = ", ".join(map(str, sorted(codes_seen)))
    return setting.row(fault, struck, f"exit code {ended}; no worker left {slowest:.0f} s later", *directories)


def signalled(number: signal.Signals) -> Callable[[Command, Path], None]:
    """A strike: a signal for the command alone."""
    return lambda command, directory: command.kill(number)


def asked_to_stop(command: Command, directory: Path) -> None:
    """A strike: `tremble sweep stop`."""
    code, said = run("sweep", "stop", directory)
    if code:
        raise RuntimeError(said)


def suspend_workers(setting: Setting, times: int = 2) -> Row:
    """SIGSTOP for a worker until another one took its run over, then SIGCONT."""
    directories, noticed = [], 0
    for _ in range(times):
        directory = setting.place()
        directories.append(directory)
        command = setting.start(directory)
        until_training(command, directory)
        setting.pause(0.05, 0.2)
        name, pid = setting.rng.choice(sorted(lock_holders(directory).items()))
        before = _newest_lock(directory, name)
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: _newest_lock(directory, name) > before, "the run was taken over", 900)  # noqa: B023
        finally:
            os.kill(pid, signal.SIGCONT)
        said = command.wait()
        if command.process.returncode:
            raise RuntimeError(said)
        noticed += "no longer owns" in (directory / "workers.log").read_text()
    happened = f"taken over after the lease; {noticed} noticed when they woke"
    return setting.row("SIGSTOP of a worker for longer than its lease", times, happened, *directories)


def _newest_lock(directory: Path, name: str) -> int:
    names = [path.stem for path in (directory / "runs" / name).glob("lock-*.json")]
    return max((int(stem.removeprefix("lock-")) for stem in names), default=0)


# --- claims -----------------------------------------------------------------------------------------------------------


def claims_left_behind(setting: Setting) -> Row:
    """Locks of a machine that is gone: they look as if somebody trained, but never change."""
    directory = setting.place()
    places = setting.planned(directory)
    owner = {"id": "0" * 32, "machine": "elsewhere/00000000/1", "pid": 1, "count": 7, "doing": "training", "step": 0}
    for place in places:
        place.mkdir(parents=True)
        (place / "lock-1.json").write_text(json.dumps(owner | {"time": 0.0}).ljust(511) + "\n")
    begin = time.monotonic()
    said = setting.finish(directory)
    if time.monotonic() - begin < LEASE:
        raise RuntimeError(f"taken over before the lease: {said}")
    return setting.row("lock of another machine that is gone", len(places), "taken over after the lease", directory)


def workers_race(setting: Setting, workers: int = 6) -> Row:
    """Many workers at once, without an engine."""
    directory = setting.place()
    places = setting.planned(directory)
    command = [sys.executable, "-m", "tremble.sweeps.worker", str(directory)]
    from tremble.sweeps.local import worker_environment

    variables = worker_environment(environment(**setting.variables))
    racing = [subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) for _ in range(workers)]
    codes = {process.wait() for process in racing}
    tries = [place.with_name(f"{place.name}.tries.jsonl").read_text().count('"worker"') for place in places]
    if codes != {0} or set(tries) != {1}:
        raise RuntimeError(f"workers ended with {codes}, runs were taken up {tries} times")
    return setting.row(f"{workers} workers race for each run", len(places), "one of them trained it", directory)


# --- machines ---------------------------------------------------------------------------------------------------------

JUMPING_CLOCK = """\
import os, random, time
_real, _random = time.time, random.Random(os.getpid())
time.time = lambda: _real() + _random.choice((-86400.0, 0.0, 86400.0))
"""


def clock_jumps(setting: Setting) -> Row:
    """In every process, every look at the clock is a day early or late at random; other processes do not agree."""
    place = setting.root / "clock"
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(JUMPING_CLOCK)
    path = os.pathsep.join([str(place), environment()["PYTHONPATH"]])
    directory = setting.place()
    said = setting.finish(directory, PYTHONPATH=path)
    tries = sum(outcome["tries"] for outcome in outcomes_of(directory).values())
    if tries != len(setting.runs) or "died" in said:
        raise RuntimeError(f"{tries} tries for {len(setting.runs)} runs: somebody lost a lease: {said}")
    return setting.row("clock that jumps by a day", len(setting.runs), "nobody lost a lease", directory)


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A file system of so many bytes; yields what gives it another size."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True, capture_output=True)
    try:
        yield lambda size: _remount(place, size)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _remount(place: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)


def full_disk(setting: Setting, parts: Sequence[float] = (0.05, 0.3, 0.6, 0.9)) -> Row:
    """The disk is full again and again, with room for a larger part of the sweep each time."""
    total = sum(map(len, setting.files.values()))
    place, messages = setting.root / "disk", set()
    try:
        with small_disk(place, int(parts[0] * total)) as resize:
            directory = place / "sweep"
            for part in parts:
                resize(int(part * total))
                code, said = run(*setting.words(directory), **setting.variables)
                errors = [line for line in said.splitlines() if line.startswith("error:")]
                if code != 1 or len(errors) != 1 or "Traceback" in said:
                    raise RuntimeError(f"on a full disk the sweep ended with {code}: {said}")
                messages |= set(re.findall(r"No space left on device|make room", said))
            resize(20 * total)
            setting.finish(directory)
            happened = f"exit code 1, one message ({', '.join(sorted(messages))})"
            return setting.row("full disk", len(parts), happened, directory)
    except subprocess.CalledProcessError:
        return Row("full disk", 0, "not tried: this user may not mount a small disk", 0, [])


# --- environments -----------------------------------------------------------------------------------------------------


def faulty_cells(setting: Setting, faults: Sequence[str]) -> list[Cell]:
    """A cell for each fault of an environment, and one whose learning diverges."""
    short = min(setting.steps, 600)
    cells = [Cell(fault, "qrdqn", FAULTY, short, {"fault": fault, "at": short // 2}) for fault in faults]
    rate = SMALL | {"learning_rate": 1e30}
    return [*cells, Cell("diverges", "qrdqn", FAULTY, short, agent_options=rate)]


def faulty_environments(
    setting: Setting, faults: Sequence[str] = tuple(CAUSES), seeds: int = 2, *engine: object
) -> list[Row]:
    """Runs that cannot succeed beside those that can: each is named with its cause, and the others are the same."""
    bad = faulty_cells(setting, faults)
    file = write_sweep(setting.root / "faulty.toml", [*bad, *setting.cells], seeds, timeout_minutes=0.3)
    directory = setting.place()
    setting.finish(directory, *engine, file=file)
    _, status = run("sweep", "status", directory)
    status = " ".join(status.split())
    outcomes = outcomes_of(directory)
    found = _by_label(directory)
    wanted = CAUSES | {"diverges": ("diverged", "not finite")}
    rows, on = [], " on Ray" if engine else ""
    for cell in bad:
        state, cause = wanted[cell.label]
        for number in range(seeds):
            outcome = outcomes[f"{found[cell.label]}/seed-{number}"]
            named = f"{cell.label}, seed {number}: {state}" in status and cause in status
            if outcome["state"] != state or cause not in outcome["cause"] or not named:
                raise RuntimeError(f"{cell.label} ended as {outcome}, and the status says {status}")
        rows.append(Row(f"environment{on}: {cell.label}", seeds, f"{state}: {cause}", 0, []))
    healthy = setting.row(f"(healthy runs of that sweep{on})", 0, "finished", directory)
    return [*rows, healthy]


def faults_that_pass(setting: Setting, faults: Sequence[str] = ("exit", "crash"), strikes: int = 3) -> Row:
    """A process that dies in an environment, but only so many times: its run is taken up again."""
    short = min(setting.steps, 600)
    options = [{"fault": fault, "at": short // 2, "strikes": strikes} for fault in faults]
    cells = [Cell(f"{o['fault']} sometimes", "qrdqn", FAULTY, short, o) for o in options]
    file = write_sweep(setting.root / "passing.toml", cells, 2)
    marks = {name: setting.root / f"marks-{name}" for name in ("none", "all")}
    for place in marks.values():
        place.mkdir()
    for fault in faults:
        for number in range(strikes):
            (marks["all"] / f"{fault}-{number}").touch()
    whole, directory = setting.place(), setting.place()
    setting.finish(whole, file=file, **{MARKS: str(marks["all"])})
    setting.finish(directory, file=file, **{MARKS: str(marks["none"])})
    struck = len(list(marks["none"].iterdir()))
    found = compare(files_of_sweep(whole), files_of_sweep(directory))
    return Row("crash of a worker in an environment", struck, "taken up again", found.runs, found.different)


def _by_label(directory: Path) -> dict[str, str]:
    """Folders of cells by label."""
    from tremble.sweeps.folder import SweepFolder

    folder = SweepFolder(directory)
    return {each.cell.label: each.directory.parent.name for each in folder.planned(folder.read())[0]}


# --- Ray --------------------------------------------------------------------------------------------------------------


def on_ray(setting: Setting, kills: int = 6, removals: int = 3, drivers: int = 2) -> Iterator[Row]:
    """The faults of a cluster of three nodes."""
    with ray_cluster(nodes=3) as cluster:
        engine = ("--engine", "ray", "--address", cluster.address)
        if kills:
            yield kill_workers(setting, kills, *engine)
        killed = (-signal.SIGKILL,)
        yield disturb_driver(
            setting, "SIGKILL of the command, Ray", signalled(signal.SIGKILL), killed, drivers, *engine
        )
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            fault = f"{number.name} for the command, Ray"
            yield disturb_driver(setting, fault, signalled(number), (code,), drivers, *engine)
        yield disturb_driver(setting, "tremble sweep stop, Ray", asked_to_stop, (0,), drivers, *engine)
        yield remove_nodes(setting, cluster, removals, *engine)
        yield from faulty_environments(setting, ("raise", "hang", "exit"), 2, *engine)


def remove_nodes(setting: Setting, cluster: Any, times: int, *engine: object) -> Row:
    """All processes of a node die while it trains; another node joins."""
    removed, directories = 0, []
    while removed < times:
        directories.append(setting.place())
        command = setting.start(directories[-1], *engine)
        while until_training(command, directories[-1]) and removed < times:
            setting.pause(0.05, 0.2)
            if command.running and lock_holders(directories[-1]):
                cluster.remove_node(setting.rng.randrange(len(cluster.nodes)))
                cluster.add_node()
                removed += 1
        said = command.wait()
        if command.process.returncode:
            raise RuntimeError(said)
    return setting.row("node of Ray removed while it trains", removed, "its runs went on elsewhere", *directories)
