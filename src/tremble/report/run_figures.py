"""The figure of run directories: a panel for each environment, a curve for each agent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from tremble import escape
from tremble.report import figures
from tremble.report.curve_figures import PALETTE
from tremble.report.references import game_name, human_random
from tremble.report.run_curves import WINDOW, RunCurve
from tremble.report.run_groups import Band, Group

FEW = 6
"""Curves of a panel whose legend fits into it."""
LISTED = 60
"""Entries of the legend beside the panels; the table has all."""
Style = Literal["-", "--", "-.", ":"]
STYLES: tuple[Style, ...] = ("-", "--", "-.", ":")
MOST_DRAWN = 2000
"""Points of one line."""


@dataclass(frozen=True)
class Look:
    """Colour and style of a line."""

    colour: str
    style: Style


def draw(groups: Sequence[Group], path: Path) -> None:
    """Write ``path.png`` and ``path.svg``.

    Of several seeds: the mean with its 95 % interval, single seeds thin behind it. Of one: its evaluations, their
    episodes as dots, and the moving average of training.
    """
    panels = list(dict.fromkeys(group.panel for group in groups))
    by_panel = {panel: [group for group in groups if group.panel == panel] for panel in panels}
    looks = _looks(group.name for group in groups)
    inside = len(panels) <= 3 and max(map(len, by_panel.values())) <= FEW
    columns = len(panels) if len(panels) <= 3 else min(8, math.ceil(math.sqrt(len(panels))))
    rows = -(-len(panels) // columns)
    width, height = (6.2, 4.2) if len(panels) <= 3 else (4.4, 3.1) if len(panels) <= 12 else (3.2, 2.4)
    beside = 0.0 if inside else 2.8 * -(-min(len(looks), LISTED) // 30)
    figure, axes = figures.new(rows, columns, width * columns + beside, height * rows, squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        draw_panel(axis, by_panel[panel], looks)
        axis.set_title(
            escape.figure(_short(panel, 60 if len(panels) <= 3 else 44)), fontsize=11 if len(panels) <= 3 else 9
        )
        figures.thousands(axis.xaxis)
        if inside:
            axis.legend(fontsize=8)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.supxlabel("steps", fontsize=11)
    figure.supylabel("return", fontsize=11)
    if not inside:
        _legend_beside(figure, list(axes.flat[: len(panels)]), looks)
    figures.save(figure, path)


def draw_panel(axis: Any, groups: Sequence[Group], looks: dict[str, Look], seeds: int | None = None) -> None:
    """All groups of one environment; of each at most so many ``seeds`` on their own, and the mean of all."""
    faint = float(np.clip(10 / sum(len(group.runs) for group in groups), 0.06, 0.35))
    alone = all(len(group.runs) == 1 for group in groups) and len(groups) <= FEW
    for group in groups:
        look = looks[group.name]
        if len(group.runs) == 1:
            _draw_run(axis, group, group.runs[0], look, episodes=alone)
        else:
            _draw_seeds(axis, group, look, faint, seeds)
    limits, several = axis.get_ylim(), [group for group in groups if len(group.curves()) > 1 and len(group.band.steps)]
    for group in several:
        band, alpha = group.band, min(0.15, 0.6 / len(several))
        axis.fill_between(band.steps, band.low, band.high, color=looks[group.name].colour, alpha=alpha, lw=0)
    axis.set_ylim(_room(limits, [group.band for group in several]))
    env = groups[0].runs[0].spec["env"]
    if env.startswith("atari/"):
        for level, style in (("random", ":"), ("human", "--")):
            height = float(human_random().loc[game_name(env), level])
            axis.axhline(height, color="#111111", lw=0.8, linestyle=style, label=level)


def _draw_run(axis: Any, group: Group, run: RunCurve, look: Look, episodes: bool) -> None:
    """A single run; ``episodes`` also draws those of its evaluations, and its training."""
    steps, means = run.evaluated()
    label = escape.figure(f"{_short(group.name)}, seed {run.spec['seed']}")
    if group.evaluated:
        marker = "o" if len(steps) == 1 else None  # a line through one point is invisible
        axis.plot(steps, means, look.style, lw=2, color=look.colour, marker=marker, label=label)
    if episodes:
        dots = [(step, x) for step, returns in run.evaluations for x in returns]
        if dots:
            axis.plot(*np.array(dots).T, "o", ms=3, alpha=0.35, mew=0, color=look.colour)
    if not group.evaluated or (episodes and len(run.episodes) >= WINDOW):
        ends, smooth = _thinned(*run.trained())
        label = "training" if group.evaluated else f"{label}, training"
        marker = "o" if len(ends) == 1 else None
        axis.plot(ends, smooth, look.style, lw=0.9, alpha=0.8, color=look.colour, marker=marker, label=label)


def _draw_seeds(axis: Any, group: Group, look: Look, faint: float, seeds: int | None) -> None:
    """Single seeds, as opaque as ``faint`` says, and the mean in front of them."""
    curves = group.curves()
    for curve in curves[:seeds]:
        marker = "." if len(curve[0]) == 1 else None
        axis.plot(*_thinned(*curve), look.style, lw=0.7, alpha=faint, color=look.colour, marker=marker, zorder=1.5)
    band, label = group.band, f"{_short(group.name)}, {len(curves)} seeds" + ("" if group.evaluated else ", training")
    marker = "o" if len(band.steps) == 1 else None
    axis.plot(
        band.steps,
        band.mean,
        look.style,
        lw=2,
        color=look.colour,
        marker=marker,
        label=escape.figure(label),
        zorder=2.5,
    )


def _room(limits: tuple[float, float], bands: Sequence[Band]) -> tuple[float, float]:
    """Limits of the axis: those of the lines, and room for intervals up to a third of that on either side.

    The interval of two seeds is often many times as wide as all that was measured.
    """
    low, high = limits
    room = (high - low) / 3
    lows = [float(band.low.min()) for band in bands]
    highs = [float(band.high.max()) for band in bands]
    return max(min([low, *lows]), low - room), min(max([high, *highs]), high + room)


def _looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name, the same in all panels: an agent's own colour goes to its first name."""
    found: dict[str, Look] = {}
    own = {figures.name_of(agent): colour for agent, colour in figures.COLOURS.items()}
    names = list(dict.fromkeys(names))
    used: set[str] = set()
    for name in names:
        colour = own.get(name.partition(" (")[0])
        if colour is not None and colour not in used:
            found[name] = Look(colour, "-")
            used.add(colour)
    spare = [
        colour
        for colour in (*PALETTE, *map(to_hex, colormaps["tab20"]([*range(1, 20, 2), *range(0, 20, 2)])))
        if colour not in used
    ]
    rest = [name for name in names if name not in found]
    for number, name in enumerate(rest):
        found[name] = Look(spare[number % len(spare)], STYLES[number // len(spare) % len(STYLES)])
    return {name: found[name] for name in names}


def _legend_beside(figure: Any, axes: Sequence[Any], looks: dict[str, Look]) -> None:
    """One legend for all panels, by name."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=look.colour, linestyle=look.style, lw=2, label=escape.figure(_short(name)))
        for name, look in list(looks.items())[:LISTED]
    ]
    levels = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    handles += [levels[level] for level in ("random", "human") if level in levels]
    if len(looks) > LISTED:
        handles.append(Line2D([], [], alpha=0, label=f"and {len(looks) - LISTED} more: see the table"))
    figure.legend(handles=handles, loc="outside right upper", fontsize=8, ncols=-(-len(handles) // 30))


def _thinned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    every = -(-len(steps) // MOST_DRAWN)
    return (steps[::every], values[::every]) if every > 1 else (steps, values)


def _short(name: str, most: int = 48) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
