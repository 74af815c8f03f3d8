"""The framework of studies: a sweep, and an analysis of its runs that writes a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tremble.records import CheckpointError
from tremble.settings import SettingsError, nearest
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun, finished_run
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.local import LocalOptions, SweepError
from tremble.sweeps.start import start
from tremble.sweeps.sweep import Sweep
from tremble.training import checkpoint

QUICK = """> **This is not a result.** It is the quick version of the study, {seeds} seeds and {steps:,} steps: it shows the way from runs to
> report, is too small to judge by, and gives no verdicts. The study itself is the same command without `--quick`.

"""
"""On top of every report of a quick version."""


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    out: Path
    """Directory of the sweep and of its report."""
    store: Path
    """Where run directories are; studies share it."""
    seeds: int
    steps: int
    quick: bool = False
    """The quick version: not a result. `statistics.verdict` and `direction` want to know."""
    budget_minutes: float | None = None
    jobs: int | None = None
    report_only: bool = False
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
    """The settings, each trained with every seed; none if the analysis computes everything itself."""
    analyse: Callable[[Results, Options], str]
    """Writes figures and data below ``options.out`` and returns the report in markdown."""
    seeds: int = 10
    quick_seeds: int = 2
    first_seed: int = 0
    """Seeds are ``first_seed``, ``first_seed + 1``, ...; a search uses other seeds than the study it is for."""
    steps: int = 20_000
    quick_steps: int = 3_000
    load: Callable[[FinishedRun], Any] = lambda run: run
    """A finished run, as `analyse` wants it."""
    search: Study | None = None
    """A study that selects settings of this one, on other seeds; it is trained first."""
    choices: dict[str, Any] = field(default_factory=dict)
    """What a user may choose, with defaults: tuples of words, or numbers."""
    metric: str = "auto"
    """How the general report of a sweep scores its runs."""
    measured: bool = False
    """Whether runs are so long that their speed, memory and disk are measured and shown before training."""
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

    def sweep(self, options: Options) -> Sweep:
        """Its runs."""
        seeds = range(self.first_seed, self.first_seed + options.seeds)
        return Sweep(
            cells=self.cells(options), seeds=tuple(seeds), steps=options.steps, name=self.name, metric=self.metric
        )

    def runs(self, options: Options) -> Iterator[tuple[str, PlannedRun]]:
        """Label of the cell and run, seed by seed; equal settings of two cells, also of two studies, are one run."""
        if not self.cells(options):
            return
        sweep, folder = self.sweep(options), SweepFolder(options.out, options.store)
        cells = sweep.all_cells()
        for seed in sweep.all_seeds:
            for cell in cells:
                yield cell.label, folder.run(cell, seed, options.steps, sweep)


def known_names(names: Sequence[str], known: Mapping[str, Any], kind: str) -> list[str]:
    """The names, each once; raises if one of them is not known."""
    for name in names:
        if name not in known:
            raise SettingsError(f"there is no {kind} {name!r}; {nearest(name, known)}")
    return list(dict.fromkeys(names))


def train(study: Study, options: Options, console: Console) -> None:
    """Train what is missing; raises if a run has no result and the study needs all of them."""
    local = LocalOptions(options.jobs or 0, minutes=options.budget_minutes)
    start(study.sweep(options), SweepFolder(options.out, options.store), local, console, measured=study.measured)
    lost, left = [], 0
    for label, run in study.runs(options):
        outcome = run.outcome()
        left += outcome is None
        if outcome is not None and finished_run(run) is None:
            lost.append(f"{label}, seed {run.seed}: {outcome.state}: {outcome.cause}")
    if lost and not study.partial:
        again = f"Finished runs are kept; `tremble sweep retry {options.out} --runs {options.store}` lets the others be trained again."
        raise SweepError("\n".join([f"{len(lost)} runs of {study.name} have no result:", *lost[:10], again]))
    if left:
        console.print(
            f"[yellow]{left} runs to go; the report says how many seeds each cell has. Repeat the command to go on.[/]"
        )


def collect(study: Study, options: Options) -> Results:
    """The finished runs."""
    results: Results = {}
    for label, run in study.runs(options):
        found = results.setdefault(label, [])
        if (finished := finished_run(run)) is not None:
            found.append(study.load(finished))
    return results


def search_of(study: Study, options: Options) -> tuple[Study, Options]:
    """The search of a study, with options for it: its runs are a sweep of their own, in a folder below."""
    assert study.search is not None
    seeds = study.search.quick_seeds if options.quick else study.search.seeds
    return study.search, dataclasses.replace(options, seeds=seeds, out=options.out / "search")


def _words(value: Any) -> list[str]:
    """Words of a list such as ``breakout,asterix``."""
    parts = value if isinstance(value, list | tuple) else str(value).strip("[]").split(",")
    return [str(part).strip() for part in parts]


def run_study(study: Study, options: Options, console: Console) -> Path:
    """Train, analyse, and write the report; returns its path."""
    options = dataclasses.replace(options, quick=options.quick and study.has_quick_version)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report_only:
        if study.search is not None:
            train(*search_of(study, options), console)
        if study.cells(options):
            train(study, options, console)
    results = collect(study, options)
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
