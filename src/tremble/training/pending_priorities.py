"""Priorities of sampled items, updated once the losses of their batch are computed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tremble.records import check_array
from tremble.replay import NumpyReplay


class Batch(NamedTuple):
    """A batch whose priorities are not updated yet."""

    slots: np.ndarray
    losses: Any
    inserted: int
    """Items ever inserted into replay when the batch was sampled."""


class PendingPriorities:
    """Batches that wait for their losses. The newest ``lag`` of them keep waiting when priorities are applied."""

    def __init__(self, lag: int):
        """No batch waits."""
        self.lag = lag
        self._waiting: list[Batch] = []

    def add(self, slots: np.ndarray, losses: Any, inserted: int) -> None:
        """Add a batch whose losses are being computed."""
        self._waiting.append(Batch(slots, losses, inserted))

    def apply(self, replay: NumpyReplay) -> None:
        """Set the priorities of all waiting batches but the newest ``lag``."""
        while len(self._waiting) > self.lag:
            slots, losses, inserted = self._waiting.pop(0)
            # Item k lies in slot k mod capacity; items that were overwritten since then are left out.
            numbers = inserted - 1 - (inserted - 1 - slots) % replay.capacity
            there = numbers >= replay.count - replay.capacity
            if there.any():
                replay.update_priorities(slots[there], np.asarray(losses)[there])

    def state(self) -> dict[str, np.ndarray]:
        """The batch that waits after `apply`, if any (``lag`` is at most 1)."""
        return {name: np.asarray(value) for batch in self._waiting for name, value in batch._asdict().items()}

    def load(self, state: dict[str, np.ndarray], capacity: int) -> None:
        """Continue from a `state`."""
        self._waiting = []
        if state:
            slots, losses = state["slots"], np.asarray(state["losses"])
            check_array(slots, "slots", np.int64, losses.shape, low=0)
            if slots.max(initial=0) >= capacity or not np.isfinite(losses).all():
                raise ValueError("the batch that waits for its priorities is not one of this memory")
            self._waiting = [Batch(slots, losses, int(state["inserted"]))]
