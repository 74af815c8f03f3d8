"""Matplotlib's SVG made to fit a page: colours that follow its light or dark look, names that do not collide.

Figures are drawn with placeholder colours, which become variables of CSS. A file on its own carries their values for
both looks; inside a page they come from its style.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tremble.report import figures

INK, FAINT, GRID, PAPER = "#010203", "#020304", "#030405", "#040506"
"""Placeholders: text and axes, text of less importance, grid, and the ground behind a figure."""
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5230", "#6b7280")
"""Colours of curves on a light ground: Okabe and Ito's, which also colour-blind readers tell apart, brown and grey."""
ON_DARK = ("#4aa8e8", "#ff8342", "#2fcb9d", "#eba3c9", "#f5bd41", "#9bdcff", "#c79a6f", "#aab2bf")
"""The same on a dark ground."""
VARIABLES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        INK: ("ink", "#1c2430", "#e6e9ee"),
        FAINT: ("faint", "#5b6573", "#a3acb9"),
        GRID: ("grid", "#e3e7ec", "#343b45"),
        PAPER: ("paper", "#ffffff", "#14181d"),
        "#111111": ("strong", "#111111", "#f4f6f8"),  # levels of reference in `run_figures`
        **{light: (f"series-{i}", light, dark) for i, (light, dark) in enumerate(zip(SERIES, ON_DARK, strict=True))},
    }
)
"""For each placeholder the name of its variable, and its values on a light and on a dark ground."""
STYLE: Any = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "legend.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.titleweight": "normal",
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "path.simplify_threshold": 0.5,
}
"""For `matplotlib.rc_context` around the drawing."""
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"


def colour_variables() -> str:
    """CSS that gives the variables their values: light, dark where the reader prefers that, and light in print."""
    light = "".join(f"--{name}:{value};" for name, value, _ in VARIABLES.values())
    dark = "".join(f"--{name}:{value};" for name, _, value in VARIABLES.values())
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def drawn(figure: Any) -> str:
    """A figure as SVG with variables for colours; closes it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})  # without a date, equal data give equal files
    figures.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' d="[^"<]*"', _rounded, text)
    for placeholder, (name, _, _) in VARIABLES.items():
        text = text.replace(placeholder, f"var(--{name})")
    return text


def _rounded(path: re.Match[str]) -> str:
    """The data of a path with tenths of a point, which are enough."""
    return re.sub(r"(\d+\.\d)\d+", r"\1", path.group())


def alone(text: str) -> str:
    """A file of its own, with the values of the variables."""
    style = f"<style>{colour_variables()}svg{{background:var(--paper)}}text{{font-family:{SANS}!important}}</style>"
    end = text.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text[:end]}{style}{text[end:]}'


def inline(text: str, name: str, alternative: str) -> str:
    """For the inside of a page: ids begin with the figure's name, and the size is left to the page."""
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'xlink:href="#', f'xlink:href="#{name}-', text)
    end = text.index(">") + 1
    head = re.sub(r'\s(width|height)="[^"]*"', "", text[:end])
    width = re.search(r'viewBox="0 0 ([\d.]+)', head)
    size = f' style="max-width:{float(width.group(1)) * 4 / 3:.0f}px"' if width else ""
    label = html.escape(alternative, quote=True)
    return f'{head[:-1]} role="img" aria-label="{label}"{size}>{text[end:]}'
