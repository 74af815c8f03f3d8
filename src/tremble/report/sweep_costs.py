"""The sections of cost and of commands: time of clocks and processors, and what to type to make the runs again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tremble.report.page import Block, Commands, Folded, Section, Table, Text, folded_if_long
from tremble.report.run_curves import RunCurve
from tremble.report.sweep_looks import counted
from tremble.report.sweep_runs import Entry, clock
from tremble.report.sweep_table import SweepTable

COMMANDS = 12
"""Commands of cells that are shown at once."""


def costs(table: SweepTable) -> Section:
    """Hours by agent and environment, and in total."""
    rows, total = [], np.zeros(2)
    for (agent, panel), entries in table.cells.items():
        times = [found for entry in entries if (found := clock(entry)) is not None]
        if not times:
            continue
        seconds = np.array(times, float)
        total += np.nansum(seconds, axis=0)
        rows.append([panel, agent, str(len(times)), *map(_duration, seconds.mean(0)), *map(_duration, seconds.sum(0))])
    if not rows:
        return Section("Cost", [Text("No run has recorded its time.")])
    tuning = [run.outcome for sweep in table.sweeps for run in sweep.runs if run.phase == "tuning" and run.outcome]
    text = f"Together {_duration(total[0])} of the clock, run after run, and {_duration(total[1])} of processors"
    if tuning:
        clocks, processors = sum(o.seconds for o in tuning), sum(o.processor_seconds for o in tuning)
        text += f"; the search took another {_duration(clocks)} and {_duration(processors)}"
    text += ". Evaluations and compiling are included. Times depend on the machine and on what else it was doing."
    again = sum(entry.run.outcome.tries > 1 for entry in table.entries if entry.run.outcome is not None)
    if again:
        runs = counted(again, "run was", "runs were")
        text += f" {runs} taken up more than once; their times are those of the last try, so the total is larger."
    header = ["environment", "agent", "runs", "clock per run", "processor per run", "clock", "processor"]
    return Section("Cost", [Text(text), folded_if_long(Table("Time by environment and agent.", header, rows, 2), 24)])


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:.1f} s"


def commands(table: SweepTable) -> Section:
    """What to type: the sweep's own commands, and one for the first run of each cell."""
    blocks: list[Block] = []
    lines = [line for sweep in table.sweeps for line in sweep.commands]
    if lines:
        blocks += [Text("All runs again:"), Commands(lines)]
    single = [command_of(entries) for entries in table.cells.values()]
    found = [line for line in single if line]
    text = "A single run of each agent and environment; other seeds by --seed."
    if len(found) > COMMANDS:
        blocks.append(Folded(f"Commands of single runs ({len(found):,})", [Text(text), Commands(found)]))
    elif found:
        blocks += [Text(text), Commands(found)]
    settings = _settings(table)
    if settings.rows:
        blocks.append(folded_if_long(settings, 0))
    return Section("Commands and settings", blocks)


def command_of(entries: Sequence[Entry]) -> str:
    """The command that trains the first run of a cell that has begun."""
    spec = next((entry.spec for entry in entries if entry.spec is not None), None)
    return "" if spec is None else RunCurve(spec, {}, {}, 0, None, [], []).command


def _settings(table: SweepTable) -> Table:
    """What was given for each cell, under the label that the sweep has for it."""
    rows = []
    for (agent, panel), entries in table.cells.items():
        cell = entries[0].run.cell
        given = cell.agent_options | {f"environment: {k}": v for k, v in cell.env_options.items()} | cell.run_options
        said = ", ".join(f"{name}={value}" for name, value in given.items()) or "defaults"
        rows.append([panel, agent, cell.label, cell.hyperparameters or "of the environment", said])
    header = ["environment", "agent", "label in the sweep", "hyperparameters", "given"]
    return Table("Settings by cell.", header, rows, 5)
