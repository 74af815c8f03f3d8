"""A page as markdown, its figures in files beside it."""

from __future__ import annotations

import html

from tremble import escape
from tremble.report import tables
from tremble.report.page import Block, Commands, Folded, Items, Page, Picture, Table, Text


def markdown(page: Page, figures: str = "figures") -> str:
    """The whole page; figures are ``figures/NAME.svg``."""
    parts = [f"# {escape.markdown(page.title)}\n", f"{escape.markdown(page.subtitle)}\n"]
    for section in page.sections:
        parts.append(f"## {escape.markdown(section.title)}\n")
        parts += [_block(block, figures) for block in section.blocks]
    return "\n".join(parts)


def _block(block: Block, figures: str) -> str:
    match block:
        case Text(text, warning):
            return f"{'> ' if warning else ''}{escape.markdown(_whole(text))}\n"
        case Items(items):
            return "".join(f"- {escape.markdown(item)}\n" for item in items)
        case Commands(lines):
            return _fenced([escape.plain(line) for line in lines])
        case Table(caption, header, rows, numeric_from):
            cells = [[escape.markdown(cell) for cell in row] for row in rows]
            table = tables.markdown([escape.markdown(name) for name in header], cells, numeric_from)
            return f"{table}\n*{_caption(caption)}*\n"
        case Picture(name, _, caption, alternative):
            return f"![{_caption(alternative)}]({figures}/{name}.svg)\n\n*{_caption(caption)}*\n"
        case Folded(summary, blocks):
            inner = "\n".join(_block(each, figures) for each in blocks)
            opened = html.escape(escape.plain(summary))
            return f"<details><summary>{opened}</summary>\n\n{inner}\n</details>\n"


def _caption(text: str) -> str:
    return escape.markdown(_whole(text))


def _whole(text: str) -> str:
    """One line; a paragraph that starts like a list or a quotation is still a paragraph."""
    line = " ".join(text.split())
    return f"\u200b{line}" if line[:1] in "-+>" else line


def _fenced(lines: list[str]) -> str:
    """A block of code, with a fence that is longer than any in it."""
    fence = "```"
    while any(fence in line for line in lines):
        fence += "`"
    return "\n".join([f"{fence}sh", *lines, fence]) + "\n"
