"""Pictures of N-Chain: where the agent is, and what the two ends pay."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tremble.worlds.nchain import NChain

WIDTH, HEIGHT = 720, 320
PAPER, INK, FAINT, LEFT_COLOUR, RIGHT_COLOUR, AGENT = "#ffffff", "#22303c", "#c9d1d8", "#2a7f62", "#c8553d", "#f2b134"
_LEGENDS: tuple[tuple[Literal["left", "right"], str, int, str], ...] = (
    ("left", LEFT_COLOUR, 24, "lm"),
    ("right", RIGHT_COLOUR, WIDTH - 24, "rm"),
)
"""End, colour, and where and how its text is aligned."""
_FINE = 3
"""Everything is drawn this many times larger and scaled down, which smooths the edges."""


def text(chain: NChain, position: int, elapsed: int, paid: float | None) -> str:
    """One line: the states between the laws of the two ends, the agent's in brackets."""
    states = " ".join(f"[{s}]" if s == position else f" {s} " for s in range(chain.length))
    outcome = "" if paid is None else f", paid {paid:.2f}"
    return f"{law_text(chain, 'left')} <{states}> {law_text(chain, 'right')}   step {elapsed}{outcome}\n"


def law_text(chain: NChain, end: Literal["left", "right"]) -> str:
    """The reward law of an end as a formula."""
    law = chain.reward_law(end)
    share = "" if len(law.means) == 1 else "½ "
    return " + ".join(f"{share}N({m:g}, {s:g}²)" for m, s in zip(law.means, law.stds, strict=True))


def image(chain: NChain, position: int, elapsed: int, paid: float | None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The chain above, the two reward laws on one axis below: ``[height, width, 3]``."""
    canvas = Image.new("RGB", (WIDTH * _FINE, HEIGHT * _FINE), PAPER)
    pen = ImageDraw.Draw(canvas)
    _draw_chain(pen, chain, position)
    _draw_laws(pen, chain, paid)
    outcome = f"step {elapsed}" if paid is None else f"step {elapsed}: paid {paid:.2f}"
    _write(pen, WIDTH / 2, 22, outcome, INK, 15)
    return np.asarray(canvas.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


def _draw_chain(pen: ImageDraw.ImageDraw, chain: NChain, position: int) -> None:
    last, y, margin = chain.length - 1, 108, 70
    gap = (WIDTH - 2 * margin) / last
    radius = min(26.0, 0.36 * gap)
    line = _FINE * max(1.0, radius / 9)
    pen.line(_scaled(margin, y, WIDTH - margin, y), FAINT, round(2 * line))
    for s in range(chain.length):
        x = margin + s * gap
        colour = LEFT_COLOUR if s == 0 else RIGHT_COLOUR if s == last else INK
        box = _scaled(x - radius, y - radius, x + radius, y + radius)
        fill = AGENT if s == position else PAPER
        if s in (0, last):
            pen.rounded_rectangle(box, radius * _FINE / 3, fill, colour, round(line))
        else:
            pen.ellipse(box, fill, colour, round(line))
        if radius > 9:
            _write(pen, x, y, f"s{s}", INK if s == position else colour, 0.62 * radius)
    at = margin + position * gap
    top = y - radius - 6
    pen.polygon(_scaled(at - 7, top - 12, at + 7, top - 12, at, top), AGENT)


def _draw_laws(pen: ImageDraw.ImageDraw, chain: NChain, paid: float | None) -> None:
    laws = [chain.reward_law(end) for end, *_ in _LEGENDS]
    means = np.concatenate([law.means for law in laws])
    spread = max(float(law.stds.max()) for law in laws)
    room = max(0.15 * float(np.ptp(means)), 3.5 * spread, 1e-6)
    low, high = float(means.min()) - room, float(means.max()) + room
    margin, y, tall = 70, HEIGHT - 36, 62
    rewards = np.linspace(low, high, 1200)
    x = margin + (rewards - low) / (high - low) * (WIDTH - 2 * margin)
    for law, (end, colour, side, anchor) in zip(laws, _LEGENDS, strict=True):
        # Narrow laws are widened to a few pixels to be seen at all; a peak's height is its share of the mass.
        width = np.maximum(law.stds, 0.004 * (high - low))
        peaks = np.exp(-0.5 * ((rewards[:, None] - law.means) / width) ** 2) @ law.weights
        outline = np.stack([x, y - tall * peaks], -1)
        pen.polygon(_scaled(x[0], y, *outline.ravel().tolist(), x[-1], y), colour)
        _write(pen, side, 160, f"{end} end: {law_text(chain, end)}", colour, 15, anchor)
        _write(pen, side, 180, f"mean {law.mean():g}", colour, 13, anchor)
    pen.line(_scaled(margin - 10, y, WIDTH - margin + 10, y), INK, _FINE)
    for mean in sorted(set(means.tolist())):
        _write(pen, margin + (mean - low) / (high - low) * (WIDTH - 2 * margin), y + 14, f"{mean:g}", INK, 12)
    if paid is not None:
        at = margin + (np.clip(paid, low, high) - low) / (high - low) * (WIDTH - 2 * margin)
        pen.line(_scaled(at, y - tall - 8, at, y), AGENT, 2 * _FINE)


def _write(
    pen: ImageDraw.ImageDraw, x: float, y: float, words: str, colour: str, size: float, anchor: str = "mm"
) -> None:
    pen.text((x * _FINE, y * _FINE), words, colour, _font(round(size * _FINE)), anchor)


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """A font that is always there: Matplotlib brings it."""
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _scaled(*coordinates: float) -> list[float]:
    return [c * _FINE for c in coordinates]
