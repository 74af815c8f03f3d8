"""Check a sweep completely before anything starts: every agent, environment, function and package that it names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from tremble.envs.encoding import Actions, Encoder, UnsupportedSpaceError
from tremble.records import CheckpointError
from tremble.report.run_score import METRICS
from tremble.settings import SettingsError, import_named, import_optional, nearest
from tremble.sweep_records import read_outcome
from tremble.sweeps.claimed_run import saved_step
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.sweep import Sweep, known_settings, spec_of
from tremble.trackers import TRACKERS
from tremble.training.evaluation_env import evaluation_maker
from tremble.training.spec import RunSpec

SHOWN = 10
"""Problems that a message lists."""


def check(sweep: Sweep, folder: SweepFolder) -> None:
    """Raise a SettingsError that lists everything that is wrong with a sweep."""
    problems = list(dict.fromkeys(_problems(sweep, folder)))
    if not problems:
        return
    if len(problems) == 1:
        raise SettingsError(problems[0])
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    raise SettingsError("\n".join([f"{len(problems)} things are wrong:", *problems[:SHOWN], *more]))


def _problems(sweep: Sweep, folder: SweepFolder) -> Iterator[str]:
    cells = sweep.all_cells()
    for cell in cells:
        yield from _failing(f"{cell.label}: ", partial(_try_agent, spec_of(cell, 0, sweep.steps)))
    envs = {json.dumps([cell.env, cell.env_options], sort_keys=True): cell for cell in cells}
    for cell in envs.values():
        yield from _failing(f"{cell.env}: ", partial(_try_environment, spec_of(cell, 0, sweep.steps)))
    if sweep.search is not None:
        search = sweep.search
        if search.method == "optuna":
            yield from _failing("", lambda: import_optional("optuna", "search"))
        known = {name for c in cells for name in known_settings(c.agent, c.env, c.hyperparameters, {})}
        for name in search.space:
            if name not in known and not any(path.endswith(f".{name}") for path in known):
                yield f"search: no agent has a setting {name!r}; {nearest(name, {k.rpartition('.')[2] for k in known})}"
    if sweep.callback is not None:
        yield from _failing("callback: ", lambda: _try_callback(str(sweep.callback)))
    for tracker in sweep.track:
        if tracker not in TRACKERS:
            yield f"there is no tracker {tracker!r}; {nearest(tracker, TRACKERS)}"
    yield from _too_long(sweep, folder)


def _failing(where: str, attempt: Callable[[], object]) -> Iterator[str]:
    """What is wrong, if the attempt fails."""
    try:
        attempt()
    except (SettingsError, UnsupportedSpaceError, CheckpointError, ImportError, OSError) as error:
        text = str(error)
        yield text if text.startswith(where) else where + text


def _try_agent(spec: RunSpec) -> None:
    spec.build_agent()


def _try_environment(spec: RunSpec) -> None:
    """Make an environment once, and see whether an agent could act in it."""
    source = evaluation_maker(spec, spec.env)
    made = source()
    try:
        Encoder.of(made.observation_space)
        Actions.of(made.action_space, source.name)
    finally:
        made.close()


def _try_callback(name: str) -> None:
    if not callable(import_named(name)):
        raise SettingsError(f"{name} is no function")


def _too_long(sweep: Sweep, folder: SweepFolder) -> Iterator[str]:
    """Runs that are there already with more steps than are wanted now: they cannot be cut."""
    for cell in sweep.all_cells() if folder.runs_directory.exists() else ():
        runs = [folder.run(cell, seed, sweep.steps, sweep) for seed in sweep.all_seeds]
        there = max(_steps_there(run) for run in runs)
        if there > runs[0].steps:
            yield (
                f"{cell.label} is there with {there:,} steps, and {runs[0].steps:,} are asked for: runs can be "
                "lengthened, not cut; choose another directory"
            )


def _steps_there(run: PlannedRun) -> int:
    outcome = read_outcome(run.outcome_file)
    return saved_step(run.directory) if outcome is None else outcome.step


def check_metric(metric: str, columns: Iterable[str]) -> None:
    """Raise unless a metric is one of those that runs are scored by, or one of the columns of their metrics."""
    known = [*METRICS, "auto", *columns]
    if metric not in known:
        raise SettingsError(f"there is no metric {metric!r}; {nearest(metric, known)}")


def nothing_learned(runs: list[PlannedRun]) -> list[str]:
    """Warnings about runs that end before learning starts."""
    found = {}
    for run in {run.cell.label: run for run in runs}.values():
        start = run.spec.build_agent().learning.start_steps
        if start >= run.steps:
            found[run.cell.label] = f"{run.cell.label}: learning starts at step {start:,}, and its runs end at step "
            found[run.cell.label] += f"{run.steps:,}"
    return list(found.values())
