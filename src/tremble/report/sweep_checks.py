"""What may stand in one report: scores of one environment are measured in one way, or the report is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tremble import escape
from tremble.report.curves import protocol_of
from tremble.report.sweep_runs import Entry
from tremble.report.sweep_table import SweepTable
from tremble.settings import SettingsError

FIELDS = {
    "steps": "length of training in steps",
    "final_episodes": "episodes of the evaluation after training",
    "evaluate_env": "environment of the evaluations",
    "evaluate_episodes": "episodes of an evaluation",
    "evaluate_steps": "steps of an evaluation",
}
"""Fields of `RunSpec` that have to be the same for all runs on an environment."""
OF_EVALUATIONS = {"evaluate_every": "steps between evaluations"}
"""The same, where the metric is made of evaluations during training, or they choose the weights."""
MADE_OF_EVALUATIONS = ("evaluations", "best_evaluation", "best")


def check_comparable(table: SweepTable) -> None:
    """Raise a SettingsError that names what differs, if scores of this report do not compare."""
    _check_protocols(table.entries)
    for panel in table.panels:
        entries = [entry for agent in table.here(panel) for entry in table.cells[agent, panel]]
        _check_lengths(panel, entries, table.metric(panel))
    _check_options(table)


def _check_protocols(entries: Sequence[Entry]) -> None:
    """All games of Atari are played under one protocol."""
    found = sorted({protocol_of(vars(entry.run.cell)) for entry in entries if entry.run.cell.env.startswith("atari/")})
    if len(found) > 1:
        raise SettingsError(
            f"runs on Atari were made under the protocols {_listed(found)}: scores under two protocols do not compare. "
            "Make a report of each"
        )


def _check_lengths(panel: str, entries: Sequence[Entry], metric: str) -> None:
    """All runs on an environment are as long, and evaluated in the same way."""
    names = FIELDS | (OF_EVALUATIONS if metric in MADE_OF_EVALUATIONS else {})
    for name, meaning in names.items():
        found = {json.dumps(entry.spec[name]) for entry in entries if entry.spec is not None}
        if len(found) > 1:
            raise SettingsError(
                f"runs on {escape.plain(panel)} differ in the {meaning} ({name}: {_listed(sorted(found))}), so their "
                "scores do not compare. Make a report of each"
            )


def _check_options(table: SweepTable) -> None:
    """Two agents on an environment meet under equal options of the environment, or nothing compares them."""
    cells: dict[str, dict[str, set[str]]] = {}
    for (agent, panel), entries in table.cells.items():
        cells.setdefault(entries[0].run.cell.env, {}).setdefault(agent, set()).add(panel)
    for env, panels in cells.items():
        agents = list(panels)
        for i, first in enumerate(agents):
            apart = next((other for other in agents[i + 1 :] if not panels[first] & panels[other]), None)
            if apart is not None:
                named = _listed([*sorted(panels[first]), *sorted(panels[apart])])
                raise SettingsError(
                    f"on {escape.plain(env)}, {escape.plain(first)} and {escape.plain(apart)} were trained with "
                    f"different options of the environment ({named}), so their scores do not compare. "
                    "Make a report of each"
                )


def spec_of(table: SweepTable, panel: str) -> Mapping[str, Any] | None:
    """The settings of some run on an environment, for what is the same in all of them."""
    found = (entry.spec for agent in table.here(panel) for entry in table.cells[agent, panel])
    return next((spec for spec in found if spec is not None), None)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(escape.plain(name) for name in names)
