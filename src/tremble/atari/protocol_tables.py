"""The protocols of Atari as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tremble.atari.protocol_sources import note_of, source_of
from tremble.atari.protocols import AtariProtocol, about_settings, differences
from tremble.atari.published_agents import published_agents


def show(value: Any) -> str:
    """A value for people: 1,000,000, 9.766e-06, yes, zero_discount."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def comparison_rows(protocols: Sequence[AtariProtocol]) -> list[tuple[str, str, str, list[str], bool]]:
    """(group, setting, unit, values, whether they differ), group by group."""
    differing = differences(*protocols)
    return [
        (about.group, name, about.unit, [show(getattr(p, name)) for p in protocols], name in differing)
        for name, about in about_settings().items()
    ]


def side_by_side(protocols: Sequence[AtariProtocol], only_differences: bool = False) -> Table:
    """One column for each protocol; rows in which they differ are bold and marked."""
    table = Table("setting", "unit", *(p.name for p in protocols), title="How Atari scores are made")
    group = ""
    for new_group, name, unit, values, differs in comparison_rows(protocols):
        if only_differences and not differs:
            continue
        if new_group != group:
            table.add_section()
            table.add_row(Text(new_group, style="italic"))
            group = new_group
        style = "bold" if differs else "dim"
        table.add_row(
            Text(f"{'≠' if differs else ' '} {name}", style=style),
            Text(unit, style="dim"),
            *(Text(v, style=style) for v in values),
        )
    return table


def one(protocol: AtariProtocol) -> Table:
    """Every setting of one protocol with its unit, its meaning and its source."""
    table = Table("setting", "value", "unit", "what it is", "source", title=f"{protocol.name}: {protocol.about}")
    for name, about in about_settings().items():
        note = note_of(protocol, name)
        meaning = f"{about.text} ({note})" if note else about.text
        value = show(getattr(protocol, name))
        table.add_row(name, value, Text(about.unit), Text(meaning), Text(source_of(protocol, name), style="dim"))
    return table


AGENT_COLUMNS = {
    "agent": "agent",
    "optimiser": "optimiser",
    "learning rate": "learning_rate",
    "its epsilon": "optimiser_epsilon",
    "gradient": "gradient",
    "start": "replay_start_steps",
    "target": "target_update_steps",
    "ε end": "epsilon_end",
    "ε test": "evaluate_epsilon",
    "n": "n_step",
    "prioritised": "prioritised",
    "head": "head",
}
"""Columns of the tables of agents, and the fields of `PublishedAgent` they show."""


def agent_rows(protocol: AtariProtocol) -> list[list[str]]:
    """What the agents of a protocol were trained with."""
    agents = published_agents(protocol.name)
    return [[show(getattr(agent, field)) for field in AGENT_COLUMNS.values()] for agent in agents]


def agent_table(protocol: AtariProtocol) -> Table:
    """The same for a terminal."""
    table = Table(*AGENT_COLUMNS, title=f"agents published under {protocol.name} (times in steps)")
    for row in agent_rows(protocol):
        table.add_row(*(Text(cell) for cell in row))
    return table
