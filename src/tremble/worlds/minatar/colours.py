"""Pictures of MinAtar for people: a colour for each channel."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, UInt8

SCALE = 32
"""Pixels along the side of a cell."""
BACKGROUND, GRID = (24, 28, 36), (34, 39, 49)
COLOURS = (
    (242, 177, 52),
    (209, 73, 91),
    (96, 108, 128),
    (120, 190, 110),
    (86, 160, 211),
    (232, 126, 58),
    (155, 110, 190),
    (70, 180, 170),
    (235, 215, 120),
    (240, 240, 240),
)
"""For channels 0, 1, ...; where several are in a cell, the first is on top."""


def paint(observation: Bool[np.ndarray, "10 10 channels"]) -> UInt8[np.ndarray, "height width 3"]:
    """The cells as squares."""
    cells = np.full((*observation.shape[:2], 3), BACKGROUND, np.uint8)
    for channel in reversed(range(observation.shape[-1])):
        cells[observation[..., channel]] = COLOURS[channel % len(COLOURS)]
    image = cells.repeat(SCALE, 0).repeat(SCALE, 1)
    image[::SCALE] = image[:, ::SCALE] = GRID
    return image
