"""The section of learning curves: mean over seeds with its interval, single seeds behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tremble.records import CheckpointError
from tremble.report import figures
from tremble.report.page import Block, Folded, Picture, Section, Text
from tremble.report.run_curves import WINDOW, RunCurve
from tremble.report.run_figures import Look, draw_panel
from tremble.report.run_groups import Group
from tremble.report.sweep_looks import DRAWN, counted, grid, pages
from tremble.report.sweep_runs import read_curve
from tremble.report.sweep_table import SweepTable

SEEDS = 10
"""Single seeds that are drawn of a group whose mean is over more."""
CAPTION = f"""Learning curves: mean over seeds with its 95 % interval (Student's t), single seeds thin behind it.
Returns are those of evaluations during training; where a run has none, of training: means of {WINDOW} episodes, with
exploration. Where seeds were evaluated at different steps, values in between are interpolated, and the mean ends at the
last step that all seeds have reached."""


def section(table: SweepTable, looks: Mapping[str, Look]) -> Section | None:
    """Curves of all runs that have a score; None if there are none."""
    groups = {panel: _groups(table, panel) for panel in table.panels}
    panels = [panel for panel, found in groups.items() if found]
    if not panels:
        return None
    blocks: list[Block] = []
    for number, some in enumerate(pages(panels)):
        names = [agent for agent in table.agents if any(group.name == agent for p in some for group in groups[p])]
        drawn = grid(
            some,
            lambda axis, panel: _draw(axis, groups[panel], looks),
            legend=[(name, looks[name]) for name in names],
            label=("steps", "return"),
        )
        alternative = f"Learning curves on {counted(len(some), 'environment')}: return over steps."
        caption = " ".join(CAPTION.split())
        blocks.append(Picture(f"curves-{number + 1}", drawn, caption if number == 0 else "As above.", alternative))
    if len(blocks) > 1:
        rest = Folded(f"Curves on the other {len(panels) - len(pages(panels)[0]):,} environments", blocks[1:])
        blocks = [blocks[0], rest]
    if len(table.agents) > DRAWN:
        few = f"Of each environment the {DRAWN} agents with the highest mean scores are drawn; tables have all of them."
        blocks.insert(0, Text(few))
    return Section("Learning curves", blocks)


def _groups(table: SweepTable, panel: str) -> list[Group]:
    """The best agents of an environment, in the order of the report."""
    scored = {agent: table.values(agent, panel) for agent in table.here(panel)}
    best = sorted((agent for agent in scored if len(scored[agent])), key=lambda agent: -scored[agent].mean())[:DRAWN]
    found = []
    for agent in table.here(panel):
        if agent in best and (runs := _curves(table, agent, panel)):
            found.append(Group(panel, agent, runs))
    return found


def _curves(table: SweepTable, agent: str, panel: str) -> list[RunCurve]:
    """Curves of the runs that have a score."""
    found = []
    for entry in table.cells[agent, panel]:
        if entry.score is None:
            continue
        try:
            curve = read_curve(entry)
        except CheckpointError:  # its score is of another file; the curve cannot be drawn
            continue
        if curve is not None and any(len(x) for x in (curve.evaluations, curve.episodes)):
            found.append(curve)
    return found


def _draw(axis: Any, groups: Sequence[Group], looks: Mapping[str, Look]) -> None:
    draw_panel(axis, groups, dict(looks), SEEDS)
    figures.thousands(axis.xaxis)
    axis.xaxis.set_major_locator(figures.few_ticks(5))
