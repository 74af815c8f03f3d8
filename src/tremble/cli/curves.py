"""Learning curves of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import console

SHOWN = 30
"""Rows of the table of runs on the screen; the report has all."""


@dataclass
class Curves:
    """Draw the learning curves of runs, one panel for each environment, with their data and a report.

    Runs that differ in their seed only become one curve, with a 95 % interval. Runs may still be training;
    directories that are no runs are left out with a note.

    Examples:
      tremble curves runs/pqr-CartPole-v1-s0
      tremble curves runs/*
      tremble curves runs/pqr-atari-Pong-s0 runs/qrdqn-atari-Pong-s0 --out pong
    """

    run_directories: Positional[tuple[Path, ...]]
    """Directories of runs."""
    out: Path = Path("runs/curves")
    """Where the figure, the data and the report go."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.records import CheckpointError
        from tremble.report.run_curves import load_curve
        from tremble.report.run_groups import group_runs
        from tremble.report.run_report import GROUP_HEADINGS, HEADINGS, about_equal, group_row, report_curves, row
        from tremble.settings import SettingsError
        from tremble.training.checkpoint import write_text

        if not self.run_directories:
            raise SettingsError("name at least one run's directory: tremble curves runs/pqr-CartPole-v1-s0")
        curves, skipped = [], []
        for directory in self.run_directories:
            try:
                curves.append(load_curve(directory))
            except (SettingsError, CheckpointError) as error:
                skipped.append(error)
        if not curves:
            raise skipped[0]
        for reason in skipped:
            console.print(f"[yellow]left out:[/] {escape.console(reason)}", highlight=False, soft_wrap=True)
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(self.out / "report.md", report_curves(curves, self.out))
        groups = group_runs(curves)
        if any(len(group.runs) > 1 for group in groups):
            _show(GROUP_HEADINGS, map(group_row, groups))
        if twice := about_equal(len(curves) - sum(len(group.runs) for group in groups)):
            console.print(f"[yellow]left out:[/] {twice}", highlight=False, soft_wrap=True)
        rows = [row(run, group) for group in groups for run in group.runs]
        _show(HEADINGS, rows[:SHOWN])
        if len(rows) > SHOWN:
            console.print(f"and {len(rows) - SHOWN} more runs in the report", highlight=False)
        report = escape.console(self.out / "report.md")
        console.print(f"written to [bold]{report}[/], figure and data beside it")


def _show(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*headings)
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
