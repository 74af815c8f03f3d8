"""What the programs about sweeps share: starting commands and clusters, and comparing directories file by file."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kills import files_of

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"
STORE_BYTES = 80 * 2**20
"""Of the object store of each node; tasks of sweeps put nothing into it."""
RAY_VARIABLES = {
    # Ray takes an address on the network for this machine's, unless it is told that there is no cluster to speak of.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""Nothing of a cluster of these tests listens or talks beyond this machine."""


def environment(**more: str) -> dict[str, str]:
    """For commands: this checkout, and the variables of Ray."""
    source = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    paths = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH", "")]))
    return os.environ | RAY_VARIABLES | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "COLUMNS": "200"} | more


@dataclass
class Command:
    """A command under way, in a session of its own."""

    process: subprocess.Popen[str]
    begun: float = field(default_factory=time.monotonic)

    @property
    def running(self) -> bool:
        """Whether it is."""
        return self.process.poll() is None

    def wait(self, seconds: float = 1800) -> str:
        """What it said, at its end."""
        return self.process.communicate(timeout=seconds)[0]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to it alone: its workers have sessions of their own."""
        if self.running:
            self.process.send_signal(number)


def start(*words: object, **variables: str) -> Command:
    """Start ``tremble WORDS``."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell makes it in the background; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "tremble.cli.main", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(**variables),
        cwd=ROOT,
        start_new_session=True,
    )
    return Command(process)


def run(*words: object, **variables: str) -> tuple[int, str]:
    """The exit code of ``tremble WORDS``, and what it said."""
    command = start(*words, **variables)
    said = command.wait()
    return command.process.returncode, said


@dataclass(frozen=True)
class Finished:
    """What a command took."""

    code: int
    said: str
    seconds: float
    processor_seconds: float
    """Of the command and everything that it started and waited for."""


def measured(*words: object, **variables: str) -> Finished:
    """Run a command and add up what it and its workers took."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    code, said = run(*words, **variables)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Finished(code, said, seconds, spent)


def machine_busy_seconds() -> float:
    """Processor time that everything on this machine took since it was started."""
    numbers = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = numbers[3] + numbers[4]
    return (sum(numbers) - idle) / os.sysconf("SC_CLK_TCK")


def files_of_sweep(directory: Path) -> dict[str, bytes]:
    """What equal sweeps have in common: the files of every run, and of outcomes state and step."""
    found = {}
    for cell in sorted((directory / "runs").iterdir()):
        for path in sorted(cell.iterdir()):
            name = f"{cell.name}/{path.name}"
            if path.is_dir():
                found |= {f"{name}/{file}": content for file, content in files_of(path).items()}
            elif path.suffix == ".json":
                outcome = json.loads(path.read_text())
                found[name] = f"{outcome['state']} {outcome['step']}".encode()
    return found


@dataclass(frozen=True)
class Comparison:
    """Two sweeps, file by file."""

    runs: int
    files: int
    different: list[str]
    """Names of files that are not the same, or only in one of them."""


def compare(one: dict[str, bytes], other: dict[str, bytes], runs: Sequence[str] | None = None) -> Comparison:
    """Compare what `files_of_sweep` found, of all runs or only of some (``CELL/seed-0``)."""
    names = sorted(one.keys() | other.keys())
    if runs is not None:
        names = [name for name in names if run_of(name) in runs]
    different = [name for name in names if one.get(name) != other.get(name)]
    return Comparison(len({run_of(name) for name in names}), len(names), different)


def run_of(name: str) -> str:
    """``CELL/seed-0`` of a file of that run."""
    cell, seed, *_ = name.split("/")
    return f"{cell}/{seed.removesuffix('.json')}"


def outcomes_of(directory: Path) -> dict[str, dict[str, Any]]:
    """Every outcome, by ``CELL/seed-0``."""
    paths = sorted((directory / "runs").glob("*/seed-*.json"))
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in paths}


def lock_holders(directory: Path) -> dict[str, int]:
    """Process numbers of whoever holds a run of a sweep now, by ``CELL/seed-0``; those that are gone left out."""
    found = {}
    for path in (directory / "runs").glob("*/seed-*/lock-*.json"):
        try:
            fields = json.loads(path.read_text())
            if not fields.get("released") and "pid" in fields:
                os.kill(fields["pid"], 0)
                found[f"{path.parent.parent.name}/{path.parent.name}"] = int(fields["pid"])
        except (OSError, ValueError):
            continue
    return found


class LocalCluster:
    """A Ray cluster of several nodes on this machine: a head without cores, and nodes with some."""

    def __init__(self, nodes: int, cpus: int = 1):
        """Start it."""
        os.environ |= RAY_VARIABLES
        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]  # Ray's workers inherit it
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "node_ip_address": LOOPBACK, "include_dashboard": False}
        self._cluster = Cluster(
            initialize_head=True, connect=False, head_node_args=head | {"object_store_memory": STORE_BYTES}
        )
        self._cpus = cpus
        self.nodes = [self._add() for _ in range(nodes)]
        self._cluster.wait_for_nodes()
        self.address = str(self._cluster.address)

    def _add(self) -> Any:
        return self._cluster.add_node(num_cpus=self._cpus, node_ip_address=LOOPBACK, object_store_memory=STORE_BYTES)

    def add_node(self) -> None:
        """One more."""
        self.nodes.append(self._add())

    def remove_node(self, number: int) -> None:
        """Kill the processes of a node."""
        self._cluster.remove_node(self.nodes.pop(number), allow_graceful=False)

    def shut_down(self) -> None:
        """End all of it."""
        self._cluster.shutdown()


@contextmanager
def ray_cluster(nodes: int, cpus: int = 1) -> Iterator[LocalCluster]:
    """A cluster for a while."""
    cluster = LocalCluster(nodes, cpus)
    try:
        yield cluster
    finally:
        cluster.shut_down()


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)
