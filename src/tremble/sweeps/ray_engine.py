"""The Ray engine: one task per run on an existing cluster, over the sweep's directory on a shared disk.

Ray Core schedules the runs and starts them again where a worker or a node dies. Everything else is as on one machine:
a task claims its run by the lock in the run's directory and continues from its checkpoint, the outcome is a file, and
a driver that dies loses nothing. Diverged runs and broken environments are outcomes, which Ray does not retry.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rich.console import Console

from tremble import escape
from tremble.settings import SettingsError, import_optional
from tremble.sweeps.claimed_run import MOST_DEATHS
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.local import GRACE_SECONDS, WORKER_ENVIRONMENT, SweepError, worker_environment
from tremble.sweeps.progress import SweepProgress
from tremble.training.compilation_cache import VARIABLE as CACHE_VARIABLE

IN_FLIGHT_PER_CPU = 2
"""Tasks that wait in Ray's queue for each core of the cluster."""
CONNECT_SECONDS = 10.0
"""Until an address is taken for one where nobody listens."""
PASSED_ON = (CACHE_VARIABLE, "TREMBLE_LEASE_SECONDS", "TREMBLE_SAVE_SECONDS")
"""Variables of the driver that tasks get too."""


@dataclass(frozen=True)
class RayOptions:
    """What each run asks the cluster for."""

    address: str = "auto"
    memory_bytes: int = 0
    gpus: float = 0.0


def train_task(directory: str, runs: str, name: str, job: str, cwd: str, token: str) -> dict[str, Any] | None:
    """Train one run in a worker of Ray's; its outcome, or None if the sweep was asked to stop.

    ``token`` is that of the folder when the driver began: tasks that wait in Ray's queue when somebody asks to stop
    end at once.
    """
    import dataclasses

    from tremble.sweeps.worker import Worker
    from tremble.training.compilation_cache import enable_compilation_cache

    if cwd not in sys.path:
        sys.path.append(cwd)  # so that module:name may be a file in the directory of the driver
    enable_compilation_cache()
    folder = SweepFolder(directory, runs)
    worker = Worker(folder, job=job, token=token)
    run = next((run for run in folder.planned(worker.sweep)[0] if run.name == name), None)
    if run is None:  # of a search whose newest trials this machine does not see yet: the driver asks again
        return None
    outcome = worker.take_or_wait(run)
    return None if outcome is None else dataclasses.asdict(outcome)


def work_on_ray(folder: SweepFolder, options: RayOptions, console: Console) -> SweepProgress:
    """Work off a sweep on a cluster, until nothing is left or somebody asks it to stop."""
    ray = import_optional("ray", "ray")
    try:
        _require_listener(options.address)
        # Only warnings of Ray's own: what a run says stands in its outcome.
        common = {"log_to_driver": False, "logging_level": "warning", "ignore_reinit_error": True}
        ray.init(**({} if options.address == "local" else {"address": options.address}), **common)
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(
            f"no Ray cluster at {escape.plain(options.address)}: {error}. Start one (ray start --head), name its "
            "address, or let --address local start one on this machine"
        ) from error
    try:
        return _Driver(ray, folder, options, console).work()
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raise unless somebody listens at ``host:port``: Ray itself would go on trying for many minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass


class _Driver:
    """Submits what is left, and looks at what comes back. It holds no state that the directory does not."""

    def __init__(self, ray: Any, folder: SweepFolder, options: RayOptions, console: Console):
        self._ray, self._folder, self._sweep = ray, folder, folder.read()
        self._progress = SweepProgress(folder, console, None)
        self._token = folder.stop_token()
        self._flying: dict[Any, str] = {}
        self._terminated = False
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables |= {"XLA_FLAGS": worker_environment(os.environ)["XLA_FLAGS"], **WORKER_ENVIRONMENT}
        if options.gpus:
            del variables["JAX_PLATFORMS"]
        needs: dict[str, Any] = {"num_cpus": 1, "num_gpus": options.gpus, "runtime_env": {"env_vars": variables}}
        if options.memory_bytes:
            needs["memory"] = options.memory_bytes
        # Deaths of the run itself are counted in its directory, which ends it after `MOST_DEATHS` at one step.
        self._task = ray.remote(train_task).options(max_retries=10 * MOST_DEATHS, retry_exceptions=False, **needs)
        self._job = f"ray {ray.get_runtime_context().get_job_id()}"

    def work(self) -> SweepProgress:
        before = signal.signal(signal.SIGTERM, self._note_termination)
        try:
            while self._folder.stop_token() == self._token:
                left = self._submit()
                if not self._flying:
                    if not left:
                        break
                    time.sleep(1.0)
                self._collect(timeout=2.0)
                self._progress.look()
            while self._flying:  # asked to stop: tasks save their runs
                self._collect(timeout=2.0)
        except (KeyboardInterrupt, SystemExit):
            for reference in self._flying:
                self._ray.cancel(reference, force=False)  # as Ctrl-C in the task, which saves its run
            if self._flying:
                self._ray.wait(list(self._flying), num_returns=len(self._flying), timeout=GRACE_SECONDS)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)
        self._progress.look(now=True)
        return self._progress

    def _note_termination(self, number: int, frame: FrameType | None) -> None:
        """An exception would be raised in Ray's own code, which loses the exit code."""
        self._terminated = True

    def _submit(self) -> list[PlannedRun]:
        """Submit what is left, as much as keeps the cluster busy; returns everything that is left."""
        left = [run for run in self._folder.planned(self._sweep, ask=True)[0] if run.outcome() is None]
        flying = set(self._flying.values())
        room = IN_FLIGHT_PER_CPU * max(1, int(self._ray.cluster_resources().get("CPU", 1))) - len(flying)
        where = str(self._folder.directory.absolute()), str(self._folder.runs_directory.absolute())
        for run in [run for run in left if run.name not in flying][: max(0, room)]:
            reference = self._task.remote(*where, run.name, f"{self._job} {run.name}", os.getcwd(), self._token)
            self._flying[reference] = run.name
        return left

    def _collect(self, timeout: float) -> None:
        if self._terminated:
            raise SystemExit(128 + signal.SIGTERM)
        ready, _ = self._ray.wait([*self._flying], num_returns=1, timeout=timeout) if self._flying else ((), ())
        for reference in ready:
            name = self._flying.pop(reference)
            try:
                self._ray.get(reference)
            except self._ray.exceptions.RayTaskError as error:
                raise SweepError(
                    f"{name}: {error.cause or error}. Finished runs are kept: repeat the command."
                ) from error
            except self._ray.exceptions.RayError as error:
                raise SweepError(f"{name} could not be run by Ray: {error}. Repeat the command to go on.") from error
