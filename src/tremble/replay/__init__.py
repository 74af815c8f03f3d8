"""Replay memory: as a pytree inside compiled loops, as NumPy arrays beside host loops."""

from tremble.replay.accumulator import Accumulator
from tremble.replay.frames import FrameReplay, frame_bill
from tremble.replay.host import HostReplay, Rows, bill, readable, unpack
from tremble.replay.priorities import SumTree
from tremble.replay.spec import ReplaySpec
from tremble.replay.uniform import Replay, draw_sample

__all__ = [
    "ReplaySpec",
    "Replay",
    "draw_sample",
    "Accumulator",
    "HostReplay",
    "FrameReplay",
    "Rows",
    "unpack",
    "SumTree",
    "bill",
    "frame_bill",
    "readable",
]
