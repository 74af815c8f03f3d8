"""Text that comes from files and environments, made safe for the place where it is shown.

A name of an environment may hold anything: sequences that move the cursor, markup of the console, HTML, or the start of
a formula. `plain` removes what is not printable; the other functions also escape what their target would interpret.
"""

from __future__ import annotations

import html
import re
import unicodedata

LONGEST = 2000
"""Characters of a text that are shown."""


def plain(text: object) -> str:
    """One line of printable text: control and formatting characters are shown by their numbers."""
    shown = "".join(
        character if unicodedata.category(character)[0] != "C" and character not in "\u2028\u2029" else _code(character)
        for character in str(text)[: LONGEST + 1]
    )
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."


def console(text: object) -> str:
    """For rich's console, whose markup is in brackets."""
    from rich.markup import escape

    return escape(plain(text))


def markdown(text: object) -> str:
    """For markdown, also inside tables and headings; HTML is shown, not interpreted."""
    return re.sub(r"([\\`*_\[\]#|~$])", r"\\\1", html.escape(plain(text), quote=False))


def figure(text: object) -> str:
    """For matplotlib, where a dollar sign would start a formula."""
    return plain(text).replace("$", r"\$")


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
