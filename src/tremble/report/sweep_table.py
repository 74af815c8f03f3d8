"""The runs of a report by agent and environment, under names that tell them apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tremble.report.curves import protocol_of
from tremble.report.figures import name_of
from tremble.report.run_groups import by_numbers, called, differing
from tremble.report.sweep_runs import Entry, read_entries
from tremble.settings import SettingsError
from tremble.sweep_records import Cell, SweepData

Key = tuple[str, str]
"""Agent and environment, by their names in the report."""


@dataclass(frozen=True)
class SweepTable:
    """Test runs by agent and environment; *agent* means an agent with its settings."""

    sweeps: Sequence[SweepData]
    agents: list[str]
    panels: list[str]
    """Environments, with the options that tell them apart."""
    cells: Mapping[Key, list[Entry]]
    """Runs by agent and panel, in order of seeds."""
    twice: list[Entry] = field(default_factory=list)
    """Runs with the settings and the seed of another one of the same directory, which counts in their place."""
    merged: list[str] = field(default_factory=list)
    """Agents whose seeds come from several directories of one version."""

    @property
    def entries(self) -> list[Entry]:
        """All test runs that count once."""
        return [entry for entries in self.cells.values() for entry in entries]

    def here(self, panel: str) -> list[str]:
        """The agents that were to be trained on an environment."""
        return [agent for agent in self.agents if (agent, panel) in self.cells]

    def scores(self, agent: str, panel: str) -> dict[int, float]:
        """Scores by seed."""
        found = {entry.run.seed: entry.score for entry in self.cells.get((agent, panel), [])}
        return {seed: value for seed, value in found.items() if value is not None}

    def values(self, agent: str, panel: str) -> np.ndarray:
        """Scores in order of seeds."""
        return np.array(list(self.scores(agent, panel).values()), float)

    def metric(self, panel: str) -> str:
        """How runs on an environment are scored."""
        return next(entry.metric for (_, where), entries in self.cells.items() if where == panel for entry in entries)

    def seeds(self, agent: str, panel: str) -> str:
        """Number of seeds, as a table says it: ``4 of 5`` where runs are missing."""
        planned, scored = len(self.cells.get((agent, panel), [])), len(self.scores(agent, panel))
        return str(planned) if planned == scored else f"{scored} of {planned}"

    def complete(self, agent: str, panel: str) -> bool:
        """Whether all runs that were planned have a score."""
        return all(entry.score is not None for entry in self.cells.get((agent, panel), []))


def sweep_table(sweeps: Sequence[SweepData]) -> SweepTable:
    """Read all runs and name them."""
    metrics = {sweep.metric for sweep in sweeps}
    if len(metrics) > 1:
        raise SettingsError(
            f"runs are scored by {' and by '.join(sorted(map(repr, metrics)))}: scores by two metrics do not compare. "
            "Make a report of each, or give all directories the same metric"
        )
    entries = read_entries(sweeps)
    if not entries:
        raise SettingsError("there are no runs to report")
    titles = panel_titles([entry.run.cell for entry in entries])
    names = _names(entries)
    bases = [names[cell_key(entry.run.cell)] for entry in entries]
    panels = [titles[_panel_key(entry.run.cell)] for entry in entries]
    places = _by_directory(entries, panels, bases, short_names([sweep.directory for sweep in sweeps]))
    order = list(dict.fromkeys(names.values()))
    rank = {place: (order.index(base), entry.source) for entry, base, place in zip(entries, bases, places, strict=True)}
    cells, twice = _cells(entries, panels, places)
    sources: dict[str, set[int]] = {}
    for entry, place in zip(entries, places, strict=True):
        sources.setdefault(place, set()).add(entry.source)
    return SweepTable(
        sweeps,
        sorted(rank, key=lambda place: rank[place]),
        list(dict.fromkeys(titles.values())),
        cells,
        twice,
        [place for place, found in sources.items() if len(found) > 1],
    )


def _cells(
    entries: Sequence[Entry], panels: Sequence[str], places: Sequence[str]
) -> tuple[dict[Key, list[Entry]], list[Entry]]:
    """Runs by agent and environment in order of seeds, and those that are there a second time."""
    cells: dict[Key, dict[int, Entry]] = {}
    twice = []
    for entry, panel, place in zip(entries, panels, places, strict=True):
        seeds = cells.setdefault((place, panel), {})
        known = seeds.get(entry.run.seed)
        better = known is None or (known.score is None and entry.score is not None)
        if better:
            seeds[entry.run.seed] = entry
        if known is not None:
            twice.append(known if better else entry)
    return {key: [seeds[seed] for seed in sorted(seeds)] for key, seeds in cells.items()}, twice


def panel_titles(cells: Sequence[Cell]) -> dict[str, str]:
    """A title for each environment with its options: Atari's names its protocol."""
    envs = {_panel_key(cell): cell for cell in cells}
    titles = {}
    for key, cell in envs.items():
        alike = [_env_options(other) for other in envs.values() if other.env == cell.env]
        shown = [*(["protocol"] if cell.env.startswith("atari/") else []), *differing(alike)]
        titles[key] = called(cell.env, _env_options(cell), list(dict.fromkeys(shown)))
    return titles


def options_of(cell: Cell) -> dict[str, Any]:
    """What was chosen for the agent of a cell: its table of hyperparameters, its options, those of the run."""
    return {"hyperparameters": cell.hyperparameters or "default"} | cell.agent_options | cell.run_options


def _env_options(cell: Cell) -> dict[str, Any]:
    return cell.env_options | ({"protocol": protocol_of(vars(cell))} if cell.env.startswith("atari/") else {})


def _panel_key(cell: Cell) -> str:
    return json.dumps([cell.env, _env_options(cell)], sort_keys=True)


def _names(entries: Sequence[Entry]) -> dict[str, str]:
    """A name for the agent of each cell, by the key of the cell, in the order of the report.

    An agent that has one setting on every environment goes by its name alone, also where settings differ between
    environments (tables by hand, winners of searches). Otherwise names have the settings that differ.
    """
    names: dict[str, str] = {}
    cells = {cell_key(entry.run.cell): entry.run.cell for entry in entries}
    for agent in dict.fromkeys(cell.agent for cell in cells.values()):
        alike = {key: cell for key, cell in cells.items() if cell.agent == agent}
        per_panel: dict[str, set[str]] = {}
        for cell in alike.values():
            per_panel.setdefault(_panel_key(cell), set()).add(json.dumps(options_of(cell), sort_keys=True))
        if max(map(len, per_panel.values())) == 1:
            names |= dict.fromkeys(alike, name_of(agent))
            continue
        options = {key: options_of(cell) for key, cell in alike.items()}
        keys = differing(list(options.values()))
        found = {key: called(name_of(agent), each, keys) for key, each in options.items()}
        found = _unique(found, options)
        names |= dict(sorted(found.items(), key=lambda item: by_numbers(item[1])))
    return names


def _unique(names: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """The same names with numbers where two settings read the same, as 5 and "5" do."""
    known: dict[str, list[str]] = {}
    found = {}
    for key, name in names.items():
        alike = known.setdefault(name, [])
        this = json.dumps(options[key], sort_keys=True)
        if this not in alike:
            alike.append(this)
        number = alike.index(this) + 1
        found[key] = name if number == 1 else f"{name}, number {number}"
    return found


def cell_key(cell: Cell) -> str:
    """Equal for cells that differ at most in label and length."""
    return json.dumps([cell.agent, _panel_key(cell), options_of(cell)], sort_keys=True)


def _by_directory(
    entries: Sequence[Entry], panels: Sequence[str], names: Sequence[str], directories: Sequence[str]
) -> list[str]:
    """The name of each entry's agent, with its directory where several directories have that agent.

    Directories that were made by the same version and share no seed are one experiment in parts, and stay together.
    """
    where: dict[Key, dict[int, list[Entry]]] = {}
    for entry, name, panel in zip(entries, names, panels, strict=True):
        where.setdefault((name, panel), {}).setdefault(entry.source, []).append(entry)
    apart = {name for (name, _), sources in where.items() if len(sources) > 1 and not _one_experiment(sources)}
    return [
        f"{name} [{directories[entry.source]}]" if name in apart else name
        for entry, name in zip(entries, names, strict=True)
    ]


def _one_experiment(sources: Mapping[int, Sequence[Entry]]) -> bool:
    """Whether runs of several directories are of one version, each with seeds of its own."""
    seeds = [entry.run.seed for entries in sources.values() for entry in entries]
    outcomes = [entry.run.outcome for entries in sources.values() for entry in entries]
    versions = {
        json.dumps([outcome.versions, outcome.revision], sort_keys=True) for outcome in outcomes if outcome is not None
    }
    return len(set(seeds)) == len(seeds) and len(versions) <= 1


def short_names(directories: Sequence[Path]) -> list[str]:
    """Names of directories, with as much of their paths as tells them apart."""
    for length in range(1, 8):
        names = ["/".join(path.absolute().parts[-length:]) for path in directories]
        if len(set(names)) == len(names):
            return names
    return [f"{name}, number {i + 1}" for i, name in enumerate(names)]
