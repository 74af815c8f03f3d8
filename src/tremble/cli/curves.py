"""Learning curves of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import console


@dataclass
class Curves:
    """Draw the learning curves of runs side by side, one panel for each environment, with their data and a report.

    Runs may still be training.

    Examples:
      tremble curves runs/pqr-CartPole-v1-s0
      tremble curves runs/pqr-atari-Pong-s0 runs/qrdqn-atari-Pong-s0 --out pong
    """

    run_directories: Positional[tuple[Path, ...]]
    """Directories of runs."""
    out: Path = Path("runs/curves")
    """Where the figure, the data and the report go."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.report.run_curves import HEADINGS, load_curve, report_curves, row
        from tremble.settings import SettingsError
        from tremble.training.checkpoint import write_text

        if not self.run_directories:
            raise SettingsError("name at least one run's directory: tremble curves runs/pqr-CartPole-v1-s0")
        curves = [load_curve(directory) for directory in self.run_directories]
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(self.out / "report.md", report_curves(curves, self.out))
        table = Table(*HEADINGS)
        for curve in curves:
            table.add_row(*(Text(escape.plain(cell)) for cell in row(curve)))
        console.print(table)
        report = escape.console(self.out / "report.md")
        console.print(f"written to [bold]{report}[/], figure and data beside it")
