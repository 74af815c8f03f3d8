"""Replay memory: as a pytree inside compiled loops, as NumPy arrays beside host loops."""

from tremble.replay.spec import ReplaySpec
from tremble.replay.uniform import Replay, draw_sample

__all__ = ["Replay", "ReplaySpec", "draw_sample"]
