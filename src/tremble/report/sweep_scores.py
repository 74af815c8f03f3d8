"""The section of scores: every run, means with intervals, and where the next run will fall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tremble.report import svg
from tremble.report.page import Block, Folded, Picture, Section, Table, Text, folded_if_long
from tremble.report.run_figures import Look
from tremble.report.seeds import prediction_interval, runs_for_minimum, runs_for_range, tolerance_bound
from tremble.report.statistics import mean_interval
from tremble.report.sweep_looks import PANELS, between, counted, digits_of, grid, pages, short, shown
from tremble.report.sweep_table import SweepTable

ROWS = 20
"""Agents of one panel of the figure: those with the highest means."""
LINES = 72
"""Agents of all panels of one figure together."""
FEW = 10
"""Runs from which on a tolerance bound is stated: with fewer, its factor is above 3."""
CAPTION = """Every run is a dot. The diamond is the mean, its thick bar the 95 % interval of the mean (Student's t),
the thin line the 95 % prediction interval: where one new run will fall. Intervals end at the edge of a panel."""


def section(table: SweepTable, looks: Mapping[str, Look]) -> Section:
    """Scores of all agents on all environments."""
    panels = [panel for panel in table.panels if any(table.scores(agent, panel) for agent in table.here(panel))]
    if not panels:
        return Section("Scores", [Text("No run has a score yet.", warning=True)])
    blocks = [*_figures(table, panels, looks), folded_if_long(_summary(table, panels))]
    blocks += [Text(_about_tolerance(table)), folded_if_long(_every_run(table, panels), 12)]
    sensitivity = _with_diverged(table, panels)
    if sensitivity is not None:
        blocks.append(folded_if_long(sensitivity))
    return Section("Scores", blocks)


def _figures(table: SweepTable, panels: Sequence[str], looks: Mapping[str, Look]) -> list[Block]:
    """Strips of dots, the first figure open."""
    found: list[Block] = []
    most = max(min(len(table.here(panel)), ROWS) for panel in panels)
    split = pages(panels, max(2, min(PANELS, LINES // most)))
    for number, some in enumerate(split):
        drawn = grid(
            some,
            lambda axis, panel: _strip(axis, table, panel, looks),
            height=0.9 + 0.36 * most,
            label=("score", ""),
            columns=_columns(table, some),
        )
        caption = " ".join(CAPTION.split()) if number == 0 else "As above."
        if number == 0 and len(table.agents) > ROWS:
            caption += f" Of each environment the {ROWS} agents with the highest means; tables have all of them."
        alternative = f"Scores of all runs on {counted(len(some), 'environment')}, a row of dots for each agent."
        found.append(Picture(f"scores-{number + 1}", drawn, caption, alternative))
    if len(found) > 1:
        rest = len(panels) - len(split[0])
        return [found[0], Folded(f"Scores on the other {rest:,} environments", found[1:])]
    return found


def _columns(table: SweepTable, panels: Sequence[str]) -> int:
    """Panels side by side: fewer where names of agents are long."""
    longest = max(len(agent) for panel in panels for agent in table.here(panel))
    return min(len(panels), 3 if longest <= 12 and len(panels) != 4 else 2)


def _strip(axis: Any, table: SweepTable, panel: str, looks: Mapping[str, Look]) -> None:
    """One environment: a row for each agent."""
    agents = [agent for agent in table.here(panel) if len(table.values(agent, panel))]
    agents = sorted(sorted(agents, key=lambda a: -table.values(a, panel).mean())[:ROWS], key=agents.index)
    every = np.concatenate([table.values(agent, panel) for agent in agents])
    room = max(float(np.ptp(every)), 1e-9 + 1e-3 * float(np.abs(every).max()))
    for row, agent in enumerate(agents):
        values, look = table.values(agent, panel), looks[agent]
        below = row + 0.1
        above = row - 0.2 - 0.14 * (np.arange(len(values)) % 3) * (len(values) > 3)
        axis.plot(values, above, "o", ms=4.2, mew=0, alpha=0.55, color=look.colour, zorder=2)
        if len(values) > 1:
            mean, new = mean_interval(values), prediction_interval(values)
            axis.plot([new.low, new.high], [below, below], lw=1, color=look.colour, zorder=1)
            axis.hlines(below, mean.low, mean.high, lw=3.2, color=look.colour, zorder=3)
        axis.plot([values.mean()], [below], "D", ms=5.5, color=look.colour, mec=svg.PAPER, mew=0.8, zorder=4)
    axis.set_xlim(every.min() - 0.35 * room, every.max() + 0.35 * room)
    axis.set_ylim(len(agents) - 0.5, -0.7)
    axis.set_yticks(range(len(agents)), [short(agent, 30) for agent in agents], fontsize=9)
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)


def _summary(table: SweepTable, panels: Sequence[str]) -> Table:
    """A row for each agent on each environment."""
    bound = any(len(table.values(agent, panel)) >= FEW for agent in table.agents for panel in panels)
    header = ["environment", "agent", "seeds", "mean [95 %]", "one new run [95 %]", "spread", "lowest", "highest"]
    rows = []
    for panel in panels:
        digits = digits_of(x for agent in table.here(panel) for x in table.values(agent, panel))
        for agent in table.here(panel):
            values = table.values(agent, panel)
            if not len(values):
                rows.append([panel, agent, table.seeds(agent, panel), *["–"] * (6 if bound else 5)])
                continue
            spread = float(values.std(ddof=1)) if len(values) > 1 else None
            row = [panel, agent, table.seeds(agent, panel), mean_interval(values).text(digits)]
            row += [between(prediction_interval(values), digits), shown(spread, digits)]
            row += [shown(values.min(), digits), shown(values.max(), digits)]
            rows.append(row + ([shown(_bound(values), digits)] if bound else []))
    caption = (
        "Scores by environment and agent. In brackets: 95 % intervals of the mean (Student's t) and of one new run. "
        "Spread: standard deviation between runs."
    )
    if bound:
        header.append("95 % of runs reach")
        caption += " Last column: with 95 % confidence, 95 % of all runs score at least that."
    if any(not table.complete(agent, panel) for agent, panel in table.cells):
        caption += " “4 of 5”: of five planned runs, four have a score; the others are named above."
    return Table(caption, header, rows, 2)


def _bound(values: np.ndarray) -> float | None:
    """A tolerance bound where there are runs enough: of any distribution if possible, else of normal scores."""
    if len(values) >= runs_for_minimum():
        return float(values.min())
    return tolerance_bound(values) if len(values) >= FEW else None


def _about_tolerance(table: SweepTable) -> str:
    most = max((len(table.scores(*key)) for key in table.cells), default=0)
    least, both = runs_for_minimum(), runs_for_range()
    text = (
        "The prediction interval assumes that scores of runs are normally distributed, however many seeds there are; "
        "look at the dots before you believe it. For the interval of the mean that matters less with more seeds."
    )
    if most < FEW:
        return f"{text} What 95 % of all runs reach is not stated: that needs at least {FEW} seeds, here are {most}."
    return (
        f"{text} What 95 % of all runs reach, with 95 % confidence, is mean − k·spread for normally distributed scores "
        "(k from the noncentral t distribution), which is too high if some runs fail altogether; from "
        f"{least} runs on it is the lowest score, whatever the distribution (and from {both} runs on, "
        "95 % of all runs lie between the lowest and the highest)."
    )


def _every_run(table: SweepTable, panels: Sequence[str]) -> Table:
    """Scores seed by seed."""
    rows = []
    for panel in panels:
        digits = digits_of(x for agent in table.here(panel) for x in table.values(agent, panel))
        for agent in table.here(panel):
            runs = table.cells[agent, panel]
            each = [f"{e.run.seed}: {e.state if e.score is None else shown(e.score, digits)}" for e in runs]
            rows.append([panel, agent, ", ".join(each)])
    return Table("Every run. Seed and score.", ["environment", "agent", "seed: score"], rows, 3)


def lowest(table: SweepTable, panel: str) -> float | None:
    """The lowest score of any run on an environment."""
    return min((x for agent in table.here(panel) for x in table.values(agent, panel)), default=None)


def filled(table: SweepTable, agent: str, panel: str) -> np.ndarray:
    """Scores, each run that diverged with the lowest score of any run on the environment."""
    bottom = lowest(table, panel)
    diverged = [entry for entry in table.cells[agent, panel] if entry.diverged]
    return np.append(table.values(agent, panel), [bottom] * len(diverged) if bottom is not None else [])


def _with_diverged(table: SweepTable, panels: Sequence[str]) -> Table | None:
    """Means without the diverged runs, and with them at the bottom; None if none diverged."""
    rows = []
    for panel in panels:
        for agent in table.here(panel):
            values, every = table.values(agent, panel), filled(table, agent, panel)
            if len(values) == len(every):
                continue
            digits = digits_of(every)
            without = mean_interval(values).text(digits)
            rows.append([panel, agent, str(len(every) - len(values)), without, mean_interval(every).text(digits)])
    if not rows:
        return None
    header = ["environment", "agent", "diverged", "mean without them", "mean with them as the lowest score"]
    caption = (
        "What diverged runs would change. They are left out of all other means; here each one counts as the lowest "
        "score of any run on its environment."
    )
    return Table(caption, header, rows, 2)
