"""Scores of several environments on one scale, for the agents that have runs on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tremble.report.references import game_name, human_random
from tremble.report.resampling import min_max
from tremble.report.scores import human_normalised
from tremble.report.sweep_scores import filled
from tremble.report.sweep_table import SweepTable
from tremble.settings import SettingsError


@dataclass(frozen=True)
class Normalised:
    """Scores by agent, an array for each environment."""

    panels: list[str]
    scores: dict[str, list[np.ndarray]]
    human: bool
    """Whether 0 is random play and 1 the human; otherwise 0 and 1 are the worst and the best run of the report."""
    left_out: list[str]
    """Agents that have no score on some of the environments."""
    empty: list[str]
    """Environments on which nobody, or not everybody, has scores."""

    @property
    def unequal(self) -> bool:
        """Whether some environment or agent has fewer runs than others."""
        return len({len(x) for lists in self.scores.values() for x in lists}) > 1


Values = Callable[[str, str], np.ndarray]


def normalised(table: SweepTable, diverged_as_lowest: bool = False) -> Normalised | None:
    """Scores on one scale; None if there are fewer than two environments with scores of any agent.

    ``diverged_as_lowest`` counts a diverged run as the lowest score of any run on its environment.
    """
    panels, agents = _common(table)
    if len(panels) < 2 or not agents:
        return None

    def values(agent: str, panel: str) -> np.ndarray:
        return filled(table, agent, panel) if diverged_as_lowest else table.values(agent, panel)

    human = _has_human_scores(table, panels)
    left_out = [agent for agent in table.agents if agent not in agents]
    empty = [panel for panel in table.panels if panel not in panels]
    scores = _human(table, agents, panels, values) if human else _relative(table, agents, panels, values)
    return Normalised(panels, scores, human, left_out, empty)


def _common(table: SweepTable) -> tuple[list[str], list[str]]:
    """Environments and agents that have scores for each other: all environments, or all agents, whichever is more."""
    scored = {panel: {agent for agent in table.here(panel) if table.scores(agent, panel)} for panel in table.panels}
    panels = [panel for panel in table.panels if scored[panel]]
    agents = [agent for agent in table.agents if all(agent in scored[panel] for panel in panels)]
    everybody = [agent for agent in table.agents if any(agent in here for here in scored.values())]
    shared = [panel for panel in panels if all(agent in scored[panel] for agent in everybody)]
    if len(shared) > 1 and len(shared) * len(everybody) > len(panels) * len(agents):
        return shared, everybody
    return panels, agents


def _human(table: SweepTable, agents: list[str], panels: list[str], values: Values) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {agent: [] for agent in agents}
    for panel in panels:
        reference = human_random().loc[game_name(_env(table, panel))]
        for agent in agents:
            score = human_normalised(values(agent, panel), float(reference["random"]), float(reference["human"]))
            found[agent].append(np.asarray(score, float))
    return found


def _relative(table: SweepTable, agents: list[str], panels: list[str], values: Values) -> dict[str, list[np.ndarray]]:
    """By the worst and the best run of every agent, also of those that are left out."""
    found: dict[str, list[np.ndarray]] = {agent: [] for agent in agents}
    for panel in panels:
        every = {agent: [values(agent, panel)] for agent in table.here(panel) if len(values(agent, panel))}
        scaled = min_max(every)
        for agent in agents:
            found[agent].append(scaled[agent][0])
    return found


def _has_human_scores(table: SweepTable, panels: list[str]) -> bool:
    """Whether all environments are Atari games whose human score is known."""
    try:
        return all(_env(table, panel).startswith("atari/") and game_name(_env(table, panel)) for panel in panels)
    except SettingsError:
        return False


def _env(table: SweepTable, panel: str) -> str:
    return table.cells[table.here(panel)[0], panel][0].run.cell.env
