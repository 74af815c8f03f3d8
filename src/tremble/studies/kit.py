"""Runs behind a study: which ones, whether they exist already, and training those that do not."""

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

from tremble.atari.games import is_atari
from tremble.settings import SettingsError, nearest
from tremble.studies.pool import Task, run_tasks
from tremble.training import checkpoint
from tremble.training.spec import ADDED_LATER, RunSpec

NUMERICS = 4
"""Raise when a change of the code changes the numbers of a run, so that stored runs are made again."""
NUMERICS_OF_ATARI = 6
"""Likewise, where it changes those of runs on Atari alone."""

SECONDS = "seconds.csv"
"""In a store: which run took how many seconds of processor time, compilation included where there was any."""


@dataclass(frozen=True)
class Cell:
    """One setting of a study, to be run with several seeds."""

    label: str
    agent: str
    agent_options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    env: str = "nchain"
    hyperparameters: str | None = None
    run_options: dict[str, Any] = field(default_factory=dict)
    """Further fields of `RunSpec`."""
    steps: int | None = None
    """Its own length, where cells of a study differ in it."""

    def spec(self, seed: int, steps: int) -> RunSpec:
        """The run with one seed."""
        steps = self.steps or steps
        return RunSpec(
            self.agent,
            self.env,
            steps,
            seed,
            self.hyperparameters,
            self.agent_options,
            self.env_options,
            **self.run_options,
        )


@dataclass(frozen=True)
class Options:
    """What a user may say about a study."""

    out: Path
    store: Path
    seeds: int
    steps: int
    quick: bool = False
    budget_minutes: float | None = None
    jobs: int | None = None
    report_only: bool = False
    reuse_results: Path | None = None
    """A report of the same study, made elsewhere: runs that its raw data hold are not made again."""
    choices: dict[str, Any] = field(default_factory=dict)
    """Answers to what the study leaves open (`Study.choices`)."""


Results = dict[str, list[Any]]
"""Finished runs by the label of their cell, in order of seeds."""


@dataclass(frozen=True)
class Study:
    """A figure or table of the paper: settings as data, and an analysis apart from them."""

    name: str
    about: str
    cells: Callable[[Options], list[Cell]]
    """The runs it needs; none, where the analysis computes everything itself."""
    analyse: Callable[[Results, Options], str]
    """Writes figures and data below ``options.out`` and returns the report in markdown."""
    seeds: int = 10
    quick_seeds: int = 2
    first_seed: int = 0
    """Seeds are ``first_seed``, ``first_seed + 1``, ...; a search has others than the study that reports its outcome."""
    steps: int = 20_000
    quick_steps: int = 3_000
    load: Callable[[Path, int, RunSpec], Any] = lambda path, seed, spec: checkpoint.read(path)
    """The result of a stored run (file, seed, settings), as `analyse` wants it."""
    reuse_results: Callable[[Path], Mapping[tuple[str, int], Any]] | None = None
    """Reads the same off the raw data of a report, by cell and seed. Each has a ``run``, the place in a store that it
    came from, which names its settings: a run with other settings is not recalled."""
    search: Study | None = None
    """Runs that decide settings of this study, on seeds of their own; they are trained first."""
    choices: dict[str, Any] = field(default_factory=dict)
    """What a user may choose, with the defaults: lists of words, or numbers."""
    bill: Callable[[Sequence[RunSpec], Sequence[RunSpec], Options], RenderableType] | None = None
    """What is shown before training: what the missing runs will take, given the finished ones."""
    partial: bool = False
    """Whether a report makes sense before every cell has a run."""

    def chosen(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The choices, some of them made by a user."""
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


def stored(store: Path, spec: RunSpec) -> Path:
    """Where a run's result lives. Equal settings share a place, so studies share runs."""
    settings = spec.describe()
    settings.pop("seed")
    agent = settings["agent_settings"]
    settings["agent_settings"] = {k: v for k, v in agent.items() if k not in ADDED_LATER or v != ADDED_LATER[k]}
    text = json.dumps([NUMERICS_OF_ATARI if is_atari(spec.env) else NUMERICS, settings], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return store / f"{spec.agent}-{digest}" / f"seed-{spec.seed:04d}.safetensors"


def collect(study: Study, options: Options, console: Console) -> Results:
    """Train what is missing and load what there is. Seeds go round all cells before the next seed starts."""
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
            console.print(f"{len(recalled)} runs are recalled from {options.reuse_results}")
        if study.bill is not None:
            finished = [spec for spec, path in places.values() if path.exists()]
            console.print(study.bill([task.spec for task in missing.values()], finished, options))
        train_missing(study.name, list(missing.values()), len(places) - len(recalled), options, console)
    results: Results = {label: [] for label in labels}
    for (label, seed), (spec, path) in places.items():
        if path.exists():
            results[label].append(study.load(path, seed, spec))
        elif (label, seed) in recalled:
            results[label].append(recalled[label, seed])
    return results


def _recalled(study: Study, options: Options, places: Mapping[tuple[str, int], Path]) -> dict[tuple[str, int], Any]:
    """Results in the raw data of an earlier report that belong to these very runs and are not in the store."""
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
            # AsyncLearner the results and not in them: the same run gives the same file, however long it took.
            with (options.store / SECONDS).open("a", encoding="utf-8") as file:
                file.write(f"{tasks[number].out.relative_to(options.store)},{seconds:.2f}\n")

        budget = None if options.budget_minutes is None else 60 * options.budget_minutes
        finished = run_tasks(
            tasks,
            jobs=options.jobs,
            budget_seconds=budget,
            on_step=on_step,
            on_done=on_done,
            log=options.store / "workers.log",
        )
    if finished < len(tasks):
        console.print(
            f"[yellow]stopped at the budget of {options.budget_minutes:g} minutes with {len(tasks) - finished} runs "
            "to go; the report says how many seeds each cell has. Repeat the command to go on.[/]"
        )


def seconds_of(store: Path, specs: Sequence[RunSpec]) -> list[float]:
    """Processor time of those of the runs for which it is known."""
    if not (store / SECONDS).exists():
        return []
    lines = [line.rsplit(",", 1) for line in (store / SECONDS).read_text(encoding="utf-8").splitlines()]
    known = {place: float(seconds) for place, seconds in lines}
    places = [str(stored(store, spec).relative_to(store)) for spec in specs]
    return [known[place] for place in places if place in known]


def _words(value: Any) -> list[str]:
    """``breakout,asterix``, as a user or the parser of settings writes it."""
    parts = value if isinstance(value, list | tuple) else str(value).strip("[]").split(",")
    return [str(part).strip() for part in parts]


def run_study(study: Study, options: Options, console: Console) -> Path:
    """Train, analyse, and write the report; returns its path."""
    options.out.mkdir(parents=True, exist_ok=True)
    if study.search is not None:
        seeds = study.search.quick_seeds if options.quick else study.search.seeds
        collect(study.search, dataclasses.replace(options, seeds=seeds), console)
    results = collect(study, options, console)
    empty = [label for label, outcomes in results.items() if not outcomes]
    if empty and (not study.partial or len(empty) == len(results)):
        raise checkpoint.CheckpointError(
            f"no finished runs for {', '.join(empty[:3])}{' …' if len(empty) > 3 else ''}: "
            "give the study more time (--budget-minutes) or run it without --report-only"
        )
    report = options.out / "report.md"
    checkpoint.write_text(report, study.analyse(results, options))
    return report
