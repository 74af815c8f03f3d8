"""The section of swept settings: scores against each setting that differs between cells of one agent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble import escape
from tremble.report.figures import name_of
from tremble.report.page import Block, Folded, Picture, Section, Table, Text, folded_if_long
from tremble.report.run_figures import Look
from tremble.report.run_groups import called, differing
from tremble.report.statistics import mean_interval
from tremble.report.sweep_looks import between, counted, digits_of, grid, looks_of, pages, shown
from tremble.report.sweep_table import SweepTable, options_of

FIGURES = 6
"""Figures of one agent; tables have all of its settings."""


LABELS = 9
"""Values with a label at an axis."""


@dataclass(frozen=True)
class Swept:
    """A setting of one agent that differs between its cells."""

    agent: str
    """The agent's name without settings."""
    setting: str
    values: list[Any]
    """In order; None where a cell leaves the setting as it is by default."""
    scores: Mapping[str, list[np.ndarray]]
    """For each environment the scores of all runs with each value, whatever their other settings."""
    others: list[str]
    """Other settings that differ too, over which scores are pooled."""


def swept_settings(table: SweepTable) -> list[Swept]:
    """All settings that differ between cells of one agent on one environment."""
    found = []
    for agent in dict.fromkeys(entry.run.cell.agent for entry in table.entries):
        panels = {panel: _cells(table, agent, panel) for panel in table.panels}
        names = dict.fromkeys(name for cells in panels.values() for name in differing([each for each, _ in cells]))
        for name in names:
            keys = {_key(options.get(name)): options.get(name) for cells in panels.values() for options, _ in cells}
            order = sorted(keys, key=lambda key: _rank(keys[key]))
            scores = {
                panel: [_pooled(cells, name, key) for key in order]
                for panel, cells in panels.items()
                if name in differing([options for options, _ in cells])
            }
            others = [other for other in names if other != name]
            found.append(Swept(name_of(agent), name, [keys[key] for key in order], scores, others))
    return found


def section(table: SweepTable) -> Section | None:
    """Plots and tables; None where nothing was swept."""
    found = swept_settings(table)
    if not found:
        return None
    text = (
        "Scores of all runs against each setting that was varied on purpose. Points are runs, lines join means, bars "
        "are 95 % intervals (Student's t). Where several settings vary, runs of all values of the others are pooled, "
        "so a difference may be theirs; the table of scores has each combination on its own."
    )
    blocks: list[Block] = [Text(text)]
    for number, swept in enumerate(found):
        figures: list[Block] = [_figure(swept, some, f"settings-{number + 1}-{i + 1}") for i, some in _shown(swept)]
        parts = [*figures, folded_if_long(_table(swept))]
        title = f"{swept.agent}: {swept.setting}"
        blocks += parts if number < FIGURES else [Folded(escape.plain(title), parts)]
    return Section("Sensitivity to settings", blocks)


def _cells(table: SweepTable, agent: str, panel: str) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Settings and scores of the cells of one agent on one environment."""
    return [
        (options_of(table.cells[name, panel][0].run.cell), table.values(name, panel))
        for name in table.here(panel)
        if table.cells[name, panel][0].run.cell.agent == agent
    ]


def _pooled(cells: Sequence[tuple[dict[str, Any], np.ndarray]], name: str, key: str) -> np.ndarray:
    found = [values for options, values in cells if _key(options.get(name)) == key]
    return np.concatenate(found) if found else np.zeros(0)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _rank(value: Any) -> tuple[int, float, str]:
    """Defaults first, numbers by size, then other values by name."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if _is_number(value) else (2, 0.0, _key(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(swept: Swept) -> list[tuple[int, Sequence[str]]]:
    """Environments by figure: one figure of the first ones; the table has the others."""
    return list(enumerate(pages(list(swept.scores))[:1]))


def _figure(swept: Swept, panels: Sequence[str], name: str) -> Picture:
    """A panel for each environment."""
    look = looks_of([swept.agent])[swept.agent]
    drawn = grid(panels, lambda axis, panel: _draw(axis, swept, panel, look), 2.4, (), (_label(swept), "score"))
    more = len(swept.scores) - len(panels)
    caption = f"{swept.agent}: scores against {swept.setting}."
    caption += f" The other {counted(more, 'environment')}: see the table." if more else ""
    caption += f" Pooled over {', '.join(swept.others)}." if swept.others else ""
    return Picture(name, drawn, caption, caption)


def _label(swept: Swept) -> str:
    return escape.figure(swept.setting)


def _draw(axis: Any, swept: Swept, panel: str, look: Look) -> None:
    """One environment: values of the setting at even distances unless all are numbers over a range."""
    values, scores = swept.values, swept.scores[panel]
    numbers = [float(value) for value in values if _is_number(value)]
    logarithmic = len(numbers) == len(values) > 2 and min(numbers) > 0 and max(numbers) / min(numbers) >= 20
    at = np.array(numbers if logarithmic else range(len(values)), float)
    if logarithmic:
        axis.set_xscale("log")
        axis.minorticks_off()
    some = [i for i, here in enumerate(scores) if len(here)]
    for i in some:
        axis.plot(np.full(len(scores[i]), at[i]), scores[i], "o", ms=3.6, mew=0, alpha=0.45, color=look.colour)
        interval = mean_interval(scores[i])
        if np.isfinite(interval.low) and len(scores[i]) > 2:
            axis.vlines(at[i], interval.low, interval.high, lw=6, color=look.colour, alpha=0.25)
    axis.plot(at[some], [scores[i].mean() for i in some], "-D", lw=1.4, ms=5, color=look.colour)
    every = -(-len(values) // LABELS)
    labels = [_short(value) if i % every == 0 else "" for i, value in enumerate(values)]
    axis.set_xticks(at, labels, fontsize=9, rotation=35 if max(map(len, labels)) * len(labels) > 34 else 0)


def _short(value: Any) -> str:
    if value is None:
        return "default"
    text = called("", {"": value}, [""])[2:-1].lstrip("=")
    return escape.figure(text if len(text) <= 14 else f"{text[:13]}…")


def _table(swept: Swept) -> Table:
    rows = []
    for panel, scores in swept.scores.items():
        digits = digits_of(x for here in scores for x in here)
        for value, here in zip(swept.values, scores, strict=True):
            if not len(here):
                continue
            interval = mean_interval(here)
            name = "default" if value is None else value if isinstance(value, str) else json.dumps(value)
            row = [panel, name, str(len(here)), shown(interval.estimate, digits), between(interval, digits)]
            rows.append([*row, shown(float(here.min()), digits), shown(float(here.max()), digits)])
    caption = f"{swept.agent}: {swept.setting}. Scores by value."
    return Table(caption, ["environment", swept.setting, "runs", "mean", "95 %", "lowest", "highest"], rows, 2)
