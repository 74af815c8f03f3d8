"""Figures and tables by command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import Assignments, console

if TYPE_CHECKING:
    from tremble.studies.kit import Study as Plan


@dataclass
class Study:
    """Reproduce a figure or table of the paper: train what is missing, then write data, figures and a report."""

    name: Positional[str]
    """Which one; `tremble list studies` shows them. One of your own: module:STUDY."""
    seeds: int | None = None
    """Seeds 0 to N-1 (default: the paper's number, or what the study's page says)."""
    quick: bool = False
    """A small version that shows the whole path in a minute or two: not a result, and without verdicts."""
    out: Path | None = None
    """Where report, figures and data go (default: runs/NAME, or runs/NAME-quick)."""
    store: Path = Path("runs/store")
    """Where runs are kept; studies share them. What is left of a study, `tremble sweep status OUT` says."""
    steps: int | None = None
    """Environment steps per run (default: 20000)."""
    budget_minutes: float | None = None
    """Start no new run after this long; the report says how many seeds each cell got."""
    jobs: int | None = None
    """Processes (default: one per core)."""
    report_only: bool = False
    """Train nothing; write the report from the runs there are."""
    set: Assignments = ()
    """Choose what a study leaves open: --set games=breakout,asterix --set agents=pqr,qrdqn (its page says what)."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.studies import find_study

        study = find_study(self.name)
        _run_study(study, self, Path("runs") / (f"{study.name}-quick" if self.quick else study.name))


@dataclass
class Demo:
    """Train the paper's four agents on N-Chain and show what they did: about three minutes on two cores."""

    out: Path = Path("runs/demo")
    """Where report, figures and data go."""
    store: Path = Path("runs/store")
    """Where trained runs are kept; an interrupted demo goes on from there."""
    seeds: int | None = None
    """Seeds 0 to N-1 (default: 5; with --full 10, as in the paper's figure)."""
    steps: int | None = None
    """Environment steps per run (default: 20000)."""
    full: bool = False
    """The paper's settings to the letter: a learning rate at which chance decides, and twice the seeds."""
    jobs: int | None = None
    """Processes (default: one per core)."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.studies.nchain.demo import FULL, FULL_REMARK, REMARK, STUDY

        study, remark = (FULL, FULL_REMARK) if self.full else (STUDY, REMARK)
        settings = Study(study.name, seeds=self.seeds, out=self.out, store=self.store, steps=self.steps, jobs=self.jobs)
        _run_study(study, settings, self.out, show_counts=True)
        console.print(" ".join(remark.split()))


@dataclass
class Illustrate:
    """Draw the paper's two illustrative figures with the library's own criteria (nothing is trained)."""

    out: Path = Path("runs/illustrate")
    """Where the figures go."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.studies.illustrations.figures import illustrate

        illustrate(self.out)
        console.print(f"figures in [bold]{escape.console(self.out)}[/]")


def _run_study(study: Plan, settings: Study, default_out: Path, show_counts: bool = False) -> None:
    """Train what is missing and write the report, as the command's settings say."""
    from tremble.settings import SettingsError, parse_assignments
    from tremble.studies.kit import Options, collect, run_study
    from tremble.studies.nchain.counts import count_table

    usual = (study.quick_seeds, study.quick_steps) if settings.quick else (study.seeds, study.steps)
    seeds = usual[0] if settings.seeds is None else settings.seeds
    steps = usual[1] if settings.steps is None else settings.steps
    if seeds < 1 or steps < 1000:
        raise SettingsError("a study needs at least one seed and 1,000 steps")
    options = Options(
        settings.out or default_out,
        settings.store,
        seeds,
        steps,
        settings.quick,
        settings.budget_minutes,
        settings.jobs,
        settings.report_only,
        study.chosen(parse_assignments(settings.set)),
    )
    report = run_study(study, options, console)
    if show_counts:
        console.print(_as_rich(count_table(collect(study, options))))
    console.print(f"report: [bold]{escape.console(report)}[/]   figures and data beside it")


def _as_rich(markdown: str) -> Table:
    """A markdown table for the terminal."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in markdown.strip().splitlines()]
    table = Table(*lines[0])
    for line in lines[2:]:
        table.add_row(*line)
    return table
