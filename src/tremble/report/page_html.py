"""A page as one HTML file: figures inside, no scripts, nothing from elsewhere; light and dark, screen and print."""

from __future__ import annotations

import html
from functools import cache
from importlib.resources import files

from tremble import escape
from tremble.report import svg
from tremble.report.page import Block, Commands, Folded, Items, Page, Picture, Section, Table, Text

SHORT = 26
"""Characters of a cell that is not broken."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content security policy: even if something were interpreted, it could load and run nothing."""


def page_html(page: Page) -> str:
    """The whole page."""
    contents = "".join(f'<li><a href="#s{i}">{_text(s.title)}</a></li>' for i, s in enumerate(page.sections))
    sections = "\n".join(_section(section, i) for i, section in enumerate(page.sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(page.title)}</title>
<style>{_style()}</style>
</head>
<body>
<header>
<h1>{_text(page.title)}</h1>
<p class="subtitle">{_text(page.subtitle)}</p>
</header>
<nav aria-label="Contents"><ol>{contents}</ol></nav>
<main>
{sections}
</main>
</body>
</html>
"""


def _section(section: Section, number: int) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return (
        f'<section aria-labelledby="s{number}">\n<h2 id="s{number}">{_text(section.title)}</h2>\n{blocks}\n</section>'
    )


def _block(block: Block) -> str:
    match block:
        case Text(text, warning):
            return f"<p{' class=warning' if warning else ''}>{_text(text)}</p>"
        case Items(items):
            return f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in items)}</ul>"
        case Commands(lines):
            return f'<pre tabindex="0"><code>{chr(10).join(map(_text, lines))}</code></pre>'
        case Table():
            return _table(block)
        case Picture(name, drawn, caption, alternative):
            inside = svg.inline(drawn, name, escape.plain(alternative))
            return f"<figure>{inside}<figcaption>{_text(caption)}</figcaption></figure>"
        case Folded(summary, blocks):
            inner = "\n".join(_block(each) for each in blocks)
            return f"<details><summary>{_text(summary)}</summary>\n{inner}\n</details>"


def _table(table: Table) -> str:
    """Cells of the first column are headers of their rows."""
    first = table.numeric_from
    head = "".join(f'<th scope="col"{_right(i, first)}>{_text(cell)}</th>' for i, cell in enumerate(table.header))
    rows = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row"{_kept(cell)}>{_text(cell)}</th>'
            if i == 0
            else f"<td{_right(i, first, cell)}>{_text(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in table.rows
    )
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{_text(table.caption.split(". ")[0])}"><table>'
        f"<caption>{_text(table.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _right(column: int, numeric_from: int, cell: str = "") -> str:
    return ' class="n"' if column >= numeric_from else _kept(cell)


def _kept(cell: str) -> str:
    """Short text stays on one line."""
    return ' class="k"' if 0 < len(cell) <= SHORT else ""


def _text(text: str) -> str:
    return html.escape(escape.plain(text), quote=True)


@cache
def _style() -> str:
    sheet = (files("tremble.report") / "page.css").read_text(encoding="utf-8")
    return sheet + svg.colour_variables()
