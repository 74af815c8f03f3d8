"""Start a sweep: check it, write its plan, show what it costs, and let an engine work on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from tremble import escape
from tremble.settings import SettingsError
from tremble.sweeps.check import check, check_metric, nothing_learned
from tremble.sweeps.estimate import Estimate, estimate, jobs_for
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.local import LocalOptions
from tremble.sweeps.progress import work_locally
from tremble.sweeps.sweep import Sweep, spec_of
from tremble.sweeps.worker import parse_shard
from tremble.training.consent import code_of_agent, code_of_environment, require_consent
from tremble.training.machine import machine

if TYPE_CHECKING:
    import pandas as pd

Engine = Literal["local", "ray"]


def start(
    sweep: Sweep,
    folder: SweepFolder,
    options: LocalOptions,
    console: Console,
    *,
    engine: Engine = "local",
    address: str = "auto",
    gpus: float = 0.0,
    dry_run: bool = False,
    measured: bool = True,
) -> None:
    """Check and work off a sweep; returns when nothing is left, or when it was asked to stop.

    ``options.jobs`` is the number of processes wanted, 0 for one per core.
    """
    folder.require_place()
    check(sweep, folder)
    runs, searches = folder.planned(sweep)
    left = [run for run in runs if run.outcome() is None]
    for warning in nothing_learned(left):
        console.print(f"[yellow]warning:[/] {escape.console(warning)}", highlight=False, soft_wrap=True)
    more = f", {len(searches)} searches (the winners' test runs come on top)" if searches else ""
    console.print(f"[bold]{escape.console(sweep.name or folder.directory.name)}[/]: {len(runs):,} runs{more}, ", end="")
    console.print(f"{len(runs) - len(left):,} already done, {len(left):,} to train")
    cost = _cost(sweep, left, options.jobs, console) if measured and left else None
    options.jobs = jobs_for(options.jobs or None, max(1, len(left)), cost.memory_bytes if cost else 0)
    if cost is not None:
        folder_there = folder.directory if folder.directory.exists() else Path.cwd()
        console.print(cost.table(options.jobs))
        for complaint in cost.complaints(machine(folder_there).free_disk):
            console.print(f"[yellow]warning:[/] {escape.console(complaint)}", highlight=False, soft_wrap=True)
    if dry_run:
        return
    folder.write(sweep)
    if engine == "ray":
        from tremble.sweeps.ray_engine import RayOptions, work_on_ray

        work_on_ray(folder, RayOptions(address, cost.memory_bytes if cost else 0, gpus), console)
        return
    if left or searches:
        work_locally(folder, options, console)


def _cost(sweep: Sweep, left: list[PlannedRun], jobs: int, console: Console) -> Estimate:
    """Measure; check by the way that the metric exists."""
    with console.status("measuring a few seconds of each kind of run") as status:
        cost = estimate(left, lambda label: status.update(f"measuring {escape.console(label)}"))
    check_metric(sweep.metric, [column for kind in cost.kinds for column in kind.measured.columns])
    return cost


def as_local_options(jobs: int | None, shard: str, minutes: float | None, wait: bool) -> LocalOptions:
    """The options of a command, checked."""
    if jobs is not None and jobs < 1:
        raise SettingsError(f"--jobs must be at least 1, got {jobs}")
    if minutes is not None and not minutes > 0:
        raise SettingsError(f"--minutes must be above 0, got {minutes}")
    try:
        return LocalOptions(jobs or 0, parse_shard(shard), minutes, wait)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def consent(sweep: Sweep, folder: SweepFolder, trust_code: bool) -> None:
    """Refuse code that only the files of a directory name."""
    named: dict[str, str] = {} if sweep.callback is None else {"callback": sweep.callback}
    for cell in sweep.all_cells():
        spec = spec_of(cell, 0, sweep.steps)
        named |= code_of_agent(spec, {}) | code_of_environment(spec)
    require_consent(folder.plan_file, named, trust_code)


def run_sweep(
    sweep: Sweep, out: Path | str, *, jobs: int | None = None, runs: Path | str | None = None, quiet: bool = False
) -> pd.DataFrame:
    """Work off a sweep on this machine and return its runs as a table (`sweep_results`).

    The same call again goes on, or adds what the sweep now asks for besides. Runs are trained in processes of their
    own, so a script that calls this needs no ``if __name__ == "__main__"``.
    """
    folder = SweepFolder(out, runs)
    folder.directory.mkdir(parents=True, exist_ok=True)
    start(sweep, folder, as_local_options(jobs, "1/1", None, True), Console(quiet=quiet), measured=False)
    return sweep_results(out, runs=runs)


def sweep_results(directory: Path | str, *, runs: Path | str | None = None) -> pd.DataFrame:
    """One row for each run of a sweep: cell, agent, environment, seed, state, score, settings, cost."""
    from tremble.sweeps.results import run_table

    return run_table([SweepFolder(directory, runs).data()])
