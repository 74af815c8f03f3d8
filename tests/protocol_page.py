"""The tables of docs/protocols.md: `python tests/protocol_page.py` writes them anew below the text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tremble.atari.protocol_sources import NOTES, note_of, source_of
from tremble.atari.protocol_tables import AGENT_COLUMNS, agent_rows, comparison_rows, show
from tremble.atari.protocols import PROTOCOLS, AtariProtocol, about_settings, differences
from tremble.report.tables import markdown

PATH = Path(__file__).parents[1] / "docs" / "protocols.md"
FIRST = "## Side by side"
"""The heading of the first table."""


def comparison_markdown(protocols: Sequence[AtariProtocol]) -> str:
    """The comparison for a page: one table for each group of settings, differing rows bold."""
    groups: dict[str, list[list[str]]] = {}
    for group, name, unit, values, differs in comparison_rows(protocols):
        cells = [f"**{value}**" if differs else value for value in values]
        groups.setdefault(group, []).append([f"`{name}`", about_settings()[name].text, unit, *cells])
    header = ("setting", "what it is", "unit", *(f"`{p.name}`" for p in protocols))
    return "\n".join(f"### {group.capitalize()}\n\n{markdown(header, rows, 3)}" for group, rows in groups.items())


def notes_markdown(protocol: AtariProtocol) -> str:
    """What the values alone do not say, as a list."""
    notes = ((name, note_of(protocol, name)) for name in about_settings())
    return "\n".join(f"- `{name}` = {show(getattr(protocol, name))}: {note}" for name, note in notes if note)


def sources_markdown(protocol: AtariProtocol) -> str:
    """Where the values were read, as a list."""
    places: dict[str, list[str]] = {}
    for name in about_settings():
        places.setdefault(source_of(protocol, name), []).append(f"`{name}`")
    return "\n".join(f"- {source}: {', '.join(names)}" for source, names in places.items())


def page(protocols: Sequence[AtariProtocol], variants: Sequence[AtariProtocol]) -> str:
    """The tables of the page: the published protocols, then the variants of the first."""
    parts = [f"{FIRST}\n\n{comparison_markdown(protocols)}"]
    for protocol in protocols:
        agents = markdown(list(AGENT_COLUMNS), agent_rows(protocol), 2)
        parts.append(
            f"## `{protocol.name}`\n\n{protocol.about}.\n\n{notes_markdown(protocol)}\n\n"
            f"Agents published under it, times in steps:\n\n{agents}\nSources:\n\n{sources_markdown(protocol)}\n"
        )
    for variant in variants:
        changed = differences(protocols[0], variant)
        lines = [
            f"- `{name}` = {show(getattr(variant, name))} instead of {show(getattr(protocols[0], name))}"
            for name in changed
        ]
        own = [f"- `{name}`: {note}" for name, note in NOTES[variant.name].items()]
        parts.append(f"## `{variant.name}`\n\n{variant.about}.\n\n" + "\n".join(lines + own) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    records = list(PROTOCOLS.values())
    text, _, _ = PATH.read_text().partition(FIRST)
    PATH.write_text(text + page(records[:3], records[3:]))
