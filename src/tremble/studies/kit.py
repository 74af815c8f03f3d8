"""The framework of studies: settings as data, a store of finished runs, training of the missing ones, a report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tremble import escape
from tremble.records import CheckpointError
from tremble.settings import SettingsError, nearest
from tremble.studies.pool import Task, run_tasks
from tremble.studies.stored_run import load_stored
from tremble.training import checkpoint
from tremble.training.spec import RunSpec

NUMERICS = 8
"""Raise when a change of the code changes the numbers of a run, so that stored runs are made again."""
QUICK = """> **This is not a result.** It is the quick version of the study, {seeds} seeds and {steps:,} steps: it shows the way from runs to
> report, is too small to judge by, and gives no verdicts. The study itself is the same command without `--quick`.

"""
"""On top of every report of a quick version."""
SECONDS = "seconds.csv"
"""File of a store with the processor time of each run in seconds, including compilation."""


@dataclass(frozen=True)
class Cell:
    """One setting of a study, trained with several seeds."""

    label: str
    agent: str
    agent_options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    env: str = "nchain"
    hyperparameters: str | None = None
    run_options: dict[str, Any] = field(default_factory=dict)
    """Further fields of `RunSpec`."""
    steps: int | None = None
    """Length of its runs; None is the length of the study."""

    def spec(self, seed: int, steps: int) -> RunSpec:
        """The run with one seed."""
        settings = (self.hyperparameters, self.agent_options, self.env_options)
        return RunSpec(self.agent, self.env, self.steps or steps, seed, *settings, **self.run_options)


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    out: Path
    store: Path
    seeds: int
    steps: int
    quick: bool = False
    """The quick version: not a result. `statistics.verdict` and `direction` want to know."""
    budget_minutes: float | None = None
    jobs: int | None = None
    report_only: bool = False
    reuse_results: Path | None = None
    """Directory of an earlier report of the study; runs in its raw data are not trained again."""
    choices: dict[str, Any] = field(default_factory=dict)
    """Values of `Study.choices`."""


Results = dict[str, list[Any]]
"""Finished runs by the label of their cell, in order of seeds."""


@dataclass(frozen=True)
class Study:
    """A figure or table of the paper: its runs, and the analysis of their results."""

    name: str
    about: str
    cells: Callable[[Options], list[Cell]]
    """The runs it needs; empty if the analysis computes everything itself."""
    analyse: Callable[[Results, Options], str]
    """Writes figures and data below ``options.out`` and returns the report in markdown."""
    seeds: int = 10
    quick_seeds: int = 2
    first_seed: int = 0
    """Seeds are ``first_seed``, ``first_seed + 1``, ...; a search uses other seeds than the study it is for."""
    steps: int = 20_000
    quick_steps: int = 3_000
    load: Callable[[Path, int, RunSpec], Any] = load_stored
    """The result of a stored run (file, seed, settings), as `analyse` wants it; by default a `StoredRun`."""
    reuse_results: Callable[[Path], Mapping[tuple[str, int], Any]] | None = None
    """Reads results from the raw data of a report, by cell and seed. Each has a ``run``, the name of its directory in
    the store, which is a digest of its settings; results of runs with other settings are not used."""
    search: Study | None = None
    """A study that selects settings of this one, on other seeds; it is trained first."""
    choices: dict[str, Any] = field(default_factory=dict)
    """What a user may choose, with defaults: tuples of words, or numbers."""
    cost_estimate: Callable[[Sequence[RunSpec], Sequence[RunSpec], Options], RenderableType] | None = None
    """The estimated cost of the missing runs, given the finished ones; shown before training."""
    has_quick_version: bool = True
    """Whether the quick version computes less; if not, it is the whole study."""
    partial: bool = False
    """Whether a report can be made before every cell has a run."""

    def chosen(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The choices with the changes of a user; validates them."""
        made = dict(self.choices)
        for name, value in changes.items():
            if name not in made:
                hint = nearest(name, made) if made else "it leaves nothing to choose"
                raise SettingsError(f"the study {self.name} has no choice {name!r}; {hint}")
            many, number = isinstance(made[name], tuple), isinstance(made[name], int)
            if number and (isinstance(value, bool) or not isinstance(value, int)):
                raise SettingsError(f"{name} must be a whole number, got {value!r}")
            made[name] = tuple(_words(value)) if many else value
        return made


def known_names(names: Sequence[str], known: Mapping[str, Any], kind: str) -> list[str]:
    """The names, each once; raises if one of them is not known."""
    for name in names:
        if name not in known:
            raise SettingsError(f"there is no {kind} {name!r}; {nearest(name, known)}")
    return list(dict.fromkeys(names))


def stored(store: Path, spec: RunSpec) -> Path:
    """File of a run's result. Equal settings have the same file, so studies share runs."""
    settings = spec.describe()
    settings.pop("seed")
    text = json.dumps([NUMERICS, settings], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return store / f"{spec.agent}-{digest}" / f"seed-{spec.seed:04d}.safetensors"


def collect(study: Study, options: Options, console: Console) -> Results:
    """Train the missing runs and load all results; every cell is trained with one seed before the next seed."""
    cells = study.cells(options)
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == len(labels), "labels of a study must differ"
    places = {
        (cell.label, seed): (spec := cell.spec(seed, options.steps), stored(options.store, spec))
        for seed in range(study.first_seed, study.first_seed + options.seeds)
        for cell in cells
    }
    recalled = _recalled(study, options, {key: path for key, (_, path) in places.items()})
    missing: dict[Path, Task] = {}
    for key, (spec, path) in places.items():
        if not path.exists() and key not in recalled:
            missing.setdefault(path, Task(spec, path))
    if missing and not options.report_only:
        if recalled:
            console.print(f"{len(recalled)} runs are recalled from {escape.console(options.reuse_results)}")
        if study.cost_estimate is not None:
            finished = [spec for spec, path in places.values() if path.exists()]
            console.print(study.cost_estimate([task.spec for task in missing.values()], finished, options))
        train_missing(study.name, list(missing.values()), len(places) - len(recalled), options, console)
    results: Results = {label: [] for label in labels}
    for (label, seed), (spec, path) in places.items():
        if path.exists():
            results[label].append(study.load(path, seed, spec))
        elif (label, seed) in recalled:
            results[label].append(recalled[label, seed])
    return results


def _recalled(study: Study, options: Options, places: Mapping[tuple[str, int], Path]) -> dict[tuple[str, int], Any]:
    """Results from the raw data of an earlier report, for runs that are not in the store."""
    if options.reuse_results is None:
        return {}
    if study.reuse_results is None:
        raise SettingsError(f"the study {study.name} cannot go on from a report: its raw data do not hold all it needs")
    try:
        known = study.reuse_results(options.reuse_results)
    except (OSError, KeyError, ValueError) as error:
        raise SettingsError(
            f"{options.reuse_results} has no raw data of {study.name} that can be read ({type(error).__name__}: {error}); "
            "name the directory of its report, made by this version or a later one"
        ) from error
    found = {key: result for key, result in known.items() if key in places and result.run == places[key].parent.name}
    if known and not found:
        raise SettingsError(
            f"none of the {len(known)} runs in {options.reuse_results} has the settings of a run wanted here: another length, "
            "other choices, or a version of tremble whose runs have other numbers"
        )
    return {key: result for key, result in found.items() if not places[key].exists()}


def seed_count(results: Results) -> str:
    """Number of seeds of a cell, or its range over cells: ``3`` or ``2–3``."""
    counts = [len(runs) for runs in results.values()]
    return "–".join(str(n) for n in sorted({min(counts), max(counts)}))


def train_missing(name: str, tasks: Sequence[Task], total: int, options: Options, console: Console) -> None:
    """Train runs in parallel under a progress bar."""
    console.print(f"[bold]{name}[/]: {total} runs, {total - len(tasks)} already there, {len(tasks)} to train")
    options.store.mkdir(parents=True, exist_ok=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        steps = sum(task.spec.steps for task in tasks)
        bar = progress.add_task("steps", total=steps, speed="compiling")
        done = dict.fromkeys(range(len(tasks)), 0)
        begin = time.monotonic()

        def on_step(number: int, step: int) -> None:
            done[number] = step
            made = sum(done.values())
            spec = tasks[number].spec
            speed = made / max(time.monotonic() - begin, 1e-9)
            progress.update(bar, completed=made, speed=f"{speed:,.0f} steps/s  {spec.agent} seed {spec.seed}")

        def on_done(number: int, seconds: float) -> None:
            # In a file of its own: results do not depend on the time a run took.
            with (options.store / SECONDS).open("a", encoding="utf-8") as file:
                file.write(f"{tasks[number].out.relative_to(options.store)},{seconds:.2f}\n")

        budget = None if options.budget_minutes is None else 60 * options.budget_minutes
        finished = run_tasks(tasks, options.store / "workers.log", options.jobs, budget, on_step, on_done)
    if finished < len(tasks):
        console.print(
            f"[yellow]stopped at the budget of {options.budget_minutes:g} minutes with {len(tasks) - finished} runs "
            "to go; the report says how many seeds each cell has. Repeat the command to go on.[/]"
        )


def seconds_of(store: Path, specs: Sequence[RunSpec]) -> list[float]:
    """Processor time of the runs for which it is known."""
    if not (store / SECONDS).exists():
        return []
    lines = (store / SECONDS).read_text(encoding="utf-8").splitlines()
    known = dict(line.rsplit(",", 1) for line in lines)
    places = [str(stored(store, spec).relative_to(store)) for spec in specs]
    return [float(known[place]) for place in places if place in known]


def _words(value: Any) -> list[str]:
    """Words of a list such as ``breakout,asterix``."""
    parts = value if isinstance(value, list | tuple) else str(value).strip("[]").split(",")
    return [str(part).strip() for part in parts]


def run_study(study: Study, options: Options, console: Console) -> Path:
    """Train, analyse, and write the report; returns its path."""
    options = dataclasses.replace(options, quick=options.quick and study.has_quick_version)
    options.out.mkdir(parents=True, exist_ok=True)
    if study.search is not None:
        seeds = study.search.quick_seeds if options.quick else study.search.seeds
        collect(study.search, dataclasses.replace(options, seeds=seeds), console)
    results = collect(study, options, console)
    empty = [label for label, outcomes in results.items() if not outcomes]
    if empty and (not study.partial or len(empty) == len(results)):
        raise CheckpointError(
            f"no finished runs for {', '.join(empty[:3])}{' …' if len(empty) > 3 else ''}: "
            "give the study more time (--budget-minutes) or run it without --report-only"
        )
    report = options.out / "report.md"
    top = QUICK.format(seeds=options.seeds, steps=options.steps) if options.quick else ""
    checkpoint.write_text(report, top + study.analyse(results, options))
    return report
