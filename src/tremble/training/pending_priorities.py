"""New priorities for the items of a batch, as soon as their losses may be asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tremble.replay import FrameReplay, NumpyReplay


class Batch(NamedTuple):
    """Items that have not got their new priorities yet."""

    slots: np.ndarray
    losses: Any
    inserted: int
    """Items ever inserted when they were sampled."""


class PendingPriorities:
    """Batches that wait for their priorities, ``lag`` of them for longer: their losses are still being computed."""

    def __init__(self, lag: int):
        """Nothing waits."""
        self.lag = lag
        self._waiting: list[Batch] = []

    def add(self, slots: np.ndarray, losses: Any, inserted: int) -> None:
        """A batch whose losses are under way."""
        self._waiting.append(Batch(slots, losses, inserted))

    def settle(self, replay: NumpyReplay | FrameReplay) -> None:
        """Give priorities to all batches that need not wait any longer."""
        while len(self._waiting) > self.lag:
            slots, losses, inserted = self._waiting.pop(0)
            # Item k lies in slot k mod capacity; those that have been overwritten since have no priority any more.
            numbers = inserted - 1 - (inserted - 1 - slots) % replay.capacity
            there = numbers >= replay.count - replay.capacity
            if there.any():
                replay.update_priorities(slots[there], np.asarray(losses)[there])

    def state(self) -> dict[str, np.ndarray]:
        """What waits on purpose; everything else must be settled."""
        return {name: np.asarray(value) for batch in self._waiting for name, value in batch._asdict().items()}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self._waiting = [Batch(state["slots"], state["losses"], int(state["inserted"]))] if state else []
