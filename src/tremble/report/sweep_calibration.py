"""The section of calibration: returns that agents predicted against returns that happened, after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble.records import CheckpointError
from tremble.report import svg
from tremble.report.page import Block, Picture, Section, Table, Text, folded_if_long
from tremble.report.quick_logs import Calibration, final_row
from tremble.report.run_figures import Look
from tremble.report.statistics import Interval, mean_interval
from tremble.report.sweep_looks import DRAWN, counted, digits_of, grid
from tremble.report.sweep_table import SweepTable

FIGURE = 6
"""Environments with a panel of their own; with more, one panel has means over environments."""


@dataclass(frozen=True)
class Calibrated:
    """Calibrations of the runs of one agent on one environment; those that have one."""

    runs: list[Calibration]

    def column(self, name: str) -> list[float]:
        """Finite values of a number."""
        found = [getattr(run, name) for run in self.runs]
        return [value for value in found if value is not None]

    def levels(self) -> list[float]:
        """Levels of the quantiles."""
        return sorted({float(level) for run in self.runs for level in run.coverage})

    def coverage(self, level: float) -> list[float]:
        """Share of episodes below the quantile at a level, for each run."""
        found = [value for run in self.runs for name, value in run.coverage.items() if float(name) == level]
        return [value for value in found if value is not None]


Found = Mapping[tuple[str, str], Calibrated]


def section(table: SweepTable, looks: Mapping[str, Look]) -> Section | None:
    """Reliability and errors; None where no run has an evaluation after training."""
    found = read_calibrations(table)
    if not found:
        return None
    text = (
        "Before the first action of each episode after training, an agent predicts the distribution of the discounted "
        "return; here it is compared with the returns that happened, for the last weights. If predictions were right, "
        "a share q of episodes would end below the predicted quantile at level q. Below the diagonal: returns were "
        "higher than predicted. W1 is the distance between predicted and observed returns, in units of the discounted "
        "return, which may differ from the score (discount, clipped rewards). Intervals are over seeds (Student's t)."
    )
    blocks: list[Block] = [Text(text), _figure(table, found, looks), folded_if_long(_table(table, found))]
    cut = [c for calibrated in found.values() for c in calibrated.column("truncated")]
    if any(share > 0 for share in cut):
        runs = counted(sum(share > 0 for share in cut), "run")
        blocks.append(Text(f"In {runs} a time limit cut some episodes; their returns lack the rest."))
    return Section("Predicted and observed returns", blocks)


def read_calibrations(table: SweepTable) -> dict[tuple[str, str], Calibrated]:
    """Of all runs that have a result and an evaluation after training."""
    found = {}
    for key, entries in table.cells.items():
        runs = []
        for entry in entries:
            if entry.score is None or not (entry.spec or {}).get("final_episodes"):
                continue
            try:
                row = final_row(entry.run.directory, "last")
            except CheckpointError:  # named among the runs without a score, if that is made of it
                continue
            if row is not None and row.calibration is not None and row.calibration.coverage:
                runs.append(row.calibration)
        if runs:
            found[key] = Calibrated(runs)
    return found


def _figure(table: SweepTable, found: Found, looks: Mapping[str, Look]) -> Picture:
    """Coverage against level: by environment if there are few, else the mean over environments."""
    panels = [panel for panel in table.panels if any(where == panel for _, where in found)]
    agents = [agent for agent in table.agents if any(who == agent for who, _ in found)][:DRAWN]
    pooled = len(panels) > FIGURE
    shown = [f"mean over {len(panels)} environments"] if pooled else panels

    def draw(axis: Any, panel: str) -> None:
        axis.plot([0, 1], [0, 1], lw=1, color=svg.FAINT, linestyle=(0, (4, 3)))
        for agent in agents:
            _line(axis, [found[key] for key in found if key[0] == agent and (pooled or key[1] == panel)], looks[agent])
        axis.set_xlim(0, 1)
        axis.set_ylim(-0.02, 1.02)

    legend = [(agent, looks[agent]) for agent in agents]
    drawn = grid(shown, draw, 3.0, legend, ("level of the predicted quantile", "share of returns below it"))
    caption = "Reliability of predicted returns; the dashed diagonal is what a calibrated agent has."
    if not pooled:
        caption += " Bars: 95 % intervals over seeds."
    return Picture("reliability", drawn, caption, "Share of returns below each predicted quantile, for each agent.")


def _line(axis: Any, here: Sequence[Calibrated], look: Look) -> None:
    """One agent: mean over environments of the mean over seeds; with intervals over seeds on one environment."""
    levels = sorted({level for calibrated in here for level in calibrated.levels()})
    means = [np.mean([np.mean(c.coverage(level)) for c in here if c.coverage(level)]) for level in levels]
    axis.plot(levels, means, look.style, marker="o", ms=4, lw=1.6, color=look.colour)
    if len(here) == 1:
        for level in levels:
            interval = mean_interval(here[0].coverage(level), between=(0.0, 1.0))
            if np.isfinite(interval.low) and interval.n > 2:
                axis.vlines(level, interval.low, interval.high, lw=1.2, color=look.colour, alpha=0.6)


def _table(table: SweepTable, found: Found) -> Table:
    rows = []
    for panel in table.panels:
        for agent in table.here(panel):
            calibrated = found.get((agent, panel))
            if calibrated is None:
                continue
            numbers = {name: calibrated.column(name) for name in ("mean_predicted", "mean_happened", "w1")}
            digits = digits_of(x for values in numbers.values() for x in values)
            row = [panel, agent, _seeds(calibrated, table, agent, panel)]
            row += [mean_interval(values).text(digits) for values in numbers.values()]
            rows.append([*row, _share(mean_interval(calibrated.coverage(0.5), between=(0.0, 1.0)))])
    header = ["environment", "agent", "seeds", "mean predicted [95 %]", "mean observed [95 %]", "W1 [95 %]"]
    header.append("below the median [95 %]")
    caption = "Predicted and observed returns at the start of an episode. Means over seeds."
    return Table(caption, header, rows, 2)


def _share(interval: Interval) -> str:
    return interval.text(2) if interval.n else "–"


def _seeds(calibrated: Calibrated, table: SweepTable, agent: str, panel: str) -> str:
    planned = len(table.cells[agent, panel])
    return str(planned) if len(calibrated.runs) == planned else f"{len(calibrated.runs)} of {planned}"
