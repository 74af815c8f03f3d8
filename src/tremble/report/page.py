"""A page as data: sections of text, tables, figures and commands, which are written as HTML and as markdown.

All text is plain; writers escape it. Nothing in it is interpreted, whatever a file of a run holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    warning: bool = False
    """Whether a reader should not miss it."""


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Commands:
    """Lines to type."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table; columns from ``numeric_from`` on are aligned right."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric_from: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, with what it shows for those who cannot see it."""

    name: str
    """Of its file, without extension."""
    svg: str
    caption: str
    alternative: str


@dataclass(frozen=True)
class Folded:
    """Details that open on demand."""

    summary: str
    blocks: Sequence[Block]


Block = Text | Items | Commands | Table | Picture | Folded


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A title and sections."""

    title: str
    subtitle: str
    sections: Sequence[Section] = field(default_factory=list)

    def pictures(self) -> list[Picture]:
        """All figures, also those in details."""
        return [found for section in self.sections for block in section.blocks for found in _pictures(block)]


def _pictures(block: Block) -> list[Picture]:
    if isinstance(block, Folded):
        return [found for inner in block.blocks for found in _pictures(inner)]
    return [block] if isinstance(block, Picture) else []


ROWS_SHOWN = 24
"""Rows of a table that are shown without opening it."""


def folded_if_long(table: Table, most: int = ROWS_SHOWN) -> Block:
    """A table, closed if it is long."""
    if len(table.rows) <= most:
        return table
    return Folded(f"{table.caption.split('. ')[0].rstrip('.')} ({len(table.rows):,} rows)", [table])
