"""Replay memory: a pytree for the loop inside XLA, NumPy arrays for the Gymnasium loop."""

from tremble.replay.accumulator import Accumulator
from tremble.replay.frame_replay import FrameReplay, frame_memory_estimate
from tremble.replay.jax_replay import Replay, draw_sample
from tremble.replay.numpy_replay import DivergedError, NumpyReplay, Rows, memory_estimate, readable, unpack
from tremble.replay.priorities import SumTree
from tremble.replay.spec import ReplaySpec

__all__ = [
    "ReplaySpec",
    "Replay",
    "draw_sample",
    "Accumulator",
    "NumpyReplay",
    "DivergedError",
    "FrameReplay",
    "Rows",
    "unpack",
    "SumTree",
    "memory_estimate",
    "frame_memory_estimate",
    "readable",
]
