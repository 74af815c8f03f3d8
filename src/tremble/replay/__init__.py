"""Stores of past transitions, and how batches are drawn from them."""

from tremble.replay.uniform import Replay, draw_sample

__all__ = ["Replay", "draw_sample"]
