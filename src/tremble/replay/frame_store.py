"""Pictures stored once each and counted by reference."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8

from tremble.records import check_array

BLACK = 0
"""The slot of the black picture, which pads the first stacks of an episode and is never freed."""
BLOCK = 1024
"""Slots per block on disk: 7 MB of 84 x 84 pictures."""


class FrameStore:
    """Slots for pictures ``[height, width]``, their reference counts, and which blocks changed since they were saved.

    Free slots are in a queue. As pictures are released in about the order in which they were stored, slots are reused
    in order, as in a ring, so the changes between two checkpoints are in few blocks.
    """

    def __init__(self, size: int, shape: tuple[int, int], file: Path | None = None) -> None:
        """Room for ``size`` pictures, growing if needed; in a memory-mapped file if one is named."""
        self._file = file
        self._frames = self._room(size + 1, shape)
        self._uses = np.zeros(size + 1, np.int32)
        self._uses[BLACK] = 1
        self._free: deque[int] = deque()
        self.used = 1
        """Slots that were ever written to."""
        self._changed = {0}

    def _room(self, size: int, shape: tuple[int, int]) -> UInt8[np.ndarray, "size height width"]:
        # np.zeros allocates lazily: pages take memory once they are written to.
        if self._file is None:
            return np.zeros((size, *shape), np.uint8)
        mode: Literal["r+", "w+"] = "r+" if hasattr(self, "_frames") else "w+"
        return np.asarray(np.memmap(self._file, np.uint8, mode, shape=(size, *shape)))

    def put(self, frame: UInt8[np.ndarray, "height width"]) -> int:
        """Store a picture; its slot is freed when its references are released."""
        if self._free:
            slot = self._free.popleft()
        else:
            slot = self.used
            if slot == len(self._uses):
                self._grow()
            self.used += 1
        self._frames[slot] = frame
        self._changed.add(slot // BLOCK)
        return slot

    def _grow(self) -> None:
        """Add half as many slots; rare, because the initial size is the expected one."""
        more = len(self._uses) // 2 + 1
        old = self._frames
        self._frames = self._room(len(old) + more, old.shape[1:])
        if self._file is None:
            self._frames[: len(old)] = old
        self._uses = np.concatenate([self._uses, np.zeros(more, np.int32)])

    def hold(self, slots: Iterable[int]) -> None:
        """Add a reference to each picture."""
        for slot in slots:
            self._uses[slot] += 1

    def release(self, slots: Iterable[int]) -> None:
        """Remove a reference from each picture; slots without references are freed."""
        for slot in slots:
            self._uses[slot] -= 1
            if self._uses[slot] == 0:
                self._free.append(slot)

    def hold_all(self, *references: Int[np.ndarray, "n stack"]) -> None:
        """Add a reference to each picture of many items."""
        for slots in references:
            self._uses += np.bincount(slots.reshape(-1), minlength=len(self._uses)).astype(np.int32)

    def take(self, slots: Int[np.ndarray, "*batch"]) -> UInt8[np.ndarray, "*batch height width"]:
        """The pictures in some slots."""
        return self._frames.take(slots, axis=0)

    # --- on disk ------------------------------------------------------------------------------------------------------

    @property
    def n_blocks(self) -> int:
        """Number of blocks; the last may be shorter."""
        return -(-self.used // BLOCK)

    def changed(self) -> list[int]:
        """Blocks that were written to since `saved` was last called."""
        return sorted(self._changed)

    def saved(self) -> None:
        """Note that all blocks are on disk as they are now."""
        self._changed.clear()

    def block(self, number: int) -> UInt8[np.ndarray, "slots height width"]:
        """The used slots of a block; a view."""
        return self._frames[number * BLOCK : min((number + 1) * BLOCK, self.used)]

    def state(self) -> dict[str, np.ndarray]:
        """Everything except the pictures and the references, which their holders add again."""
        return {"used": np.asarray(self.used, np.int64), "free": np.array(self._free, np.int64)}

    def load(self, state: dict[str, np.ndarray], blocks: Iterable[UInt8[np.ndarray, "slots height width"]]) -> None:
        """Continue from a `state` and its blocks, with no references; their holders add them again."""
        used = int(check_array(state.get("used"), "frames_used", np.int64, (), low=1))
        free = check_array(state["free"], "frames_free", np.int64, (state["free"].size,), low=1)
        self.used = 0
        for frames in blocks:
            check_array(frames, "a block of pictures", np.uint8, (len(frames), *self._frames.shape[1:]))
            while len(self._uses) < self.used + len(frames):
                self._grow()
            self._frames[self.used : self.used + len(frames)] = frames
            self.used += len(frames)
        if self.used != used or free.max(initial=0) >= used:
            raise ValueError(f"the blocks hold {self.used} pictures, and frames_used and frames_free do not fit that")
        self._uses[:] = 0
        self._uses[BLACK] = 1
        self._free = deque(free.tolist())
        self._changed.clear()
