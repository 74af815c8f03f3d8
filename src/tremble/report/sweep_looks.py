"""What all figures of a report share: colours of agents, pages of small panels, how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np

from tremble import escape
from tremble.report import figures, svg
from tremble.report.run_figures import STYLES, Look
from tremble.report.statistics import Interval

PANELS = 12
"""Panels of one figure; more environments have more figures."""
DRAWN = 8
"""Agents of one panel; tables have all of them."""
MARKERS = "osD^vPX*"


def looks_of(agents: Sequence[str]) -> dict[str, Look]:
    """A colour and a line style for each agent, the same in all figures."""
    n = len(svg.SERIES)
    return {agent: Look(svg.SERIES[i % n], STYLES[i // n % len(STYLES)]) for i, agent in enumerate(agents)}


def short(name: str, most: int = 40) -> str:
    """A name for a figure, cut if it is long."""
    plain = escape.plain(name)
    return escape.figure(plain if len(plain) <= most else f"{plain[: most - 1]}…")


def pages(panels: Sequence[str], most: int = PANELS) -> list[Sequence[str]]:
    """Panels by figure, as evenly as possible."""
    count = -(-len(panels) // most)
    size = -(-len(panels) // max(count, 1))
    return [panels[i : i + size] for i in range(0, len(panels), max(size, 1))]


def grid(
    panels: Sequence[str],
    draw: Callable[[Any, str], None],
    height: float = 2.7,
    legend: Sequence[tuple[str, Look]] = (),
    label: tuple[str, str] = ("", ""),
    columns: int | None = None,
) -> str:
    """A figure with a small panel for each environment, as SVG; ``draw`` fills an axis."""
    columns = columns or (2 if len(panels) == 4 else min(len(panels), 3))
    rows = -(-len(panels) // columns)
    width = 10.0 if columns > 1 else 6.6
    with matplotlib.rc_context(svg.STYLE):
        figure, axes = figures.new(rows, columns, width, height * rows + 0.3 * len(legend) / 3, squeeze=False)
        for axis, panel in zip(axes.flat, panels, strict=False):
            draw(axis, panel)
            axis.set_title(short(panel, 44), fontsize=10, loc="left")
        for axis in list(axes.flat)[len(panels) :]:
            axis.set_visible(False)
        if label[0]:
            figure.supxlabel(label[0], fontsize=10)
        if label[1]:
            figure.supylabel(label[1], fontsize=10)
        if legend:
            legend_above(figure, legend)
        return svg.drawn(figure)


def legend_above(figure: Any, entries: Iterable[tuple[str, Look]]) -> None:
    """One legend for all panels, above them."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, linestyle=look.style, lw=2, label=short(name)) for name, look in entries
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 3), fontsize=9, borderaxespad=0.2)


def digits_of(values: Iterable[float]) -> int:
    """Digits after the point that scores of this size need."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    largest = max(finite, default=0.0)
    return 0 if largest >= 10_000 else 1 if largest >= 100 else 2 if largest >= 1 else 3


def shown(value: float | None, digits: int) -> str:
    """A number for a table; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def between(interval: Interval, digits: int) -> str:
    """The ends of an interval; a dash where there is none."""
    if not np.isfinite(interval.low):
        return "–"
    return f"[{interval.low:,.{digits}f}, {interval.high:,.{digits}f}]"


def counted(number: int, one: str, several: str = "") -> str:
    """``1 run``, ``2 runs``."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """``a, b and c``, or the first of many."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"
