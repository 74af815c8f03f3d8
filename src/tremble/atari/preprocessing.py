"""From the emulator's screen to what an agent sees, as a protocol prescribes."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image

from tremble.atari.protocols import AtariProtocol

LUMA = (0.299, 0.587, 1 - (0.299 + 0.587))
Small = UInt8[np.ndarray, "height width"]


class Camera:
    """Keeps the last screens of a repeat and makes one small gray picture of them."""

    def __init__(self, ale: Any, protocol: AtariProtocol) -> None:
        """Look at this emulator."""
        self._ale, self._protocol = ale, protocol
        rows, columns = ale.getScreenDims()
        self._in_colour = protocol.pool_on == "rgb"
        self._screen = np.zeros((rows, columns, 3), np.uint8)
        shape = (rows, columns, 3) if self._in_colour else (rows, columns)
        self.screens = np.zeros((protocol.pool_frames, *shape), np.uint8)

    def clear(self) -> None:
        """Forget all screens: they are black."""
        self.screens[:] = 0

    def look(self, position: int) -> None:
        """Keep the present screen in one of the places that are pooled."""
        if self._in_colour:
            self._ale.getScreenRGB(self.screens[position])
        elif self._protocol.gray == "ale":
            self._ale.getScreenGrayscale(self.screens[position])
        else:
            self._ale.getScreenRGB(self._screen)
            self.screens[position] = self._to_gray(self._screen)

    def picture(self) -> Small:
        """The brightest of each pixel (sprites flicker, being drawn every other frame), in gray, small."""
        pooled = self.screens.max(axis=0)
        gray = self._to_gray(pooled) if self._in_colour else pooled
        size = (self._protocol.width, self._protocol.height)
        if self._protocol.resize == "cv2_area":
            return np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), np.uint8)
        return np.asarray(Image.fromarray(gray).resize(size, Image.Resampling.BILINEAR), np.uint8)

    def _to_gray(self, screen: UInt8[np.ndarray, "rows columns 3"]) -> UInt8[np.ndarray, "rows columns"]:
        if self._protocol.gray == "cv2":
            return np.asarray(cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY))
        return np.tensordot(screen, LUMA, (-1, 0)).astype(np.uint8)


class Stack:
    """The newest pictures of an episode, the newest last."""

    def __init__(self, protocol: AtariProtocol) -> None:
        """No episode yet."""
        self._protocol = protocol
        self.pictures: list[np.ndarray] = []

    def begin(self, first: Small) -> None:
        """An episode begins."""
        missing = self._protocol.stack - 1
        match self._protocol.stack_padding:
            case "repeat_first":
                self.pictures = [first] * (missing + 1)
            case "zeros_before":
                self.pictures = [np.zeros_like(first)] * missing + [first]
            case "zeros_after":
                self.pictures = [first]

    def add(self, picture: Small) -> None:
        """A step later."""
        self.pictures = [*self.pictures, picture][-self._protocol.stack :]

    def show(self) -> UInt8[np.ndarray, "height width stack"]:
        """What the agent sees: black after the pictures where there are still too few."""
        missing = self._protocol.stack - len(self.pictures)
        return np.stack(self.pictures + [np.zeros_like(self.pictures[0])] * missing, axis=-1)
