"""Pictures kept once each, for as long as something refers to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8

BLACK = 0
"""The slot of the black picture, which pads the first stacks of an episode and is never given away."""
BLOCK = 1024
"""Slots that are written to disk together: 7 MB of 84 x 84 pictures."""


class FrameStore:
    """Slots for pictures ``[height, width]``, how many references each has, and which changed since they were saved.

    A slot that nothing refers to any more goes to the end of a queue, and new pictures take the slots at its front. As
    pictures are released in about the order in which they came, slots are written one after the other, round and round:
    a ring that grows where it must. So the changes between two checkpoints lie in few blocks.
    """

    def __init__(self, size: int, shape: tuple[int, int], file: Path | None = None) -> None:
        """Room for ``size`` pictures, and for more if need be; in a file of its own if one is named."""
        self._file = file
        self._frames = self._room(size + 1, shape)
        self._uses = np.zeros(size + 1, np.int32)
        self._uses[BLACK] = 1
        self._free: deque[int] = deque()
        self.used = 1
        """Slots that were ever written to."""
        self._changed = {0}

    def _room(self, size: int, shape: tuple[int, int]) -> UInt8[np.ndarray, "size height width"]:
        # Zeros are promised by the operating system but not given until written to: memory grows with what is kept.
        if self._file is None:
            return np.zeros((size, *shape), np.uint8)
        mode: Literal["r+", "w+"] = "r+" if hasattr(self, "_frames") else "w+"
        return np.asarray(np.memmap(self._file, np.uint8, mode, shape=(size, *shape)))

    @property
    def nbytes(self) -> int:
        """Memory taken by what was ever written."""
        return self.used * (self._frames[0].nbytes + self._uses.itemsize)

    def put(self, frame: UInt8[np.ndarray, "height width"]) -> int:
        """Store a picture; it stays until it has been held and released as often."""
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
        """Room for half as many again; rare, because rooms are made for what is expected."""
        more = len(self._uses) // 2 + 1
        old = self._frames
        self._frames = self._room(len(old) + more, old.shape[1:])
        if self._file is None:
            self._frames[: len(old)] = old
        self._uses = np.concatenate([self._uses, np.zeros(more, np.int32)])

    def hold(self, slots: Iterable[int]) -> None:
        """Refer to pictures once more."""
        for slot in slots:
            self._uses[slot] += 1

    def release(self, slots: Iterable[int]) -> None:
        """Refer to pictures once less; what nothing refers to is given away."""
        for slot in slots:
            self._uses[slot] -= 1
            if self._uses[slot] == 0:
                self._free.append(slot)

    def hold_all(self, *references: Int[np.ndarray, "n stack"]) -> None:
        """Refer to all pictures of many items once more."""
        for slots in references:
            self._uses += np.bincount(slots.reshape(-1), minlength=len(self._uses)).astype(np.int32)

    def take(self, slots: Int[np.ndarray, "*batch"]) -> UInt8[np.ndarray, "*batch height width"]:
        """The pictures in some slots."""
        return self._frames.take(slots, axis=0)

    # --- on disk ------------------------------------------------------------------------------------------------------

    @property
    def n_blocks(self) -> int:
        """How many there are; the last may be shorter than the others."""
        return -(-self.used // BLOCK)

    def changed(self) -> list[int]:
        """Blocks that were written to since `saved` was last called."""
        return sorted(self._changed)

    def saved(self) -> None:
        """All blocks are on disk as they are now."""
        self._changed.clear()

    def block(self, number: int) -> UInt8[np.ndarray, "slots height width"]:
        """The used slots of a block, not copied."""
        return self._frames[number * BLOCK : min((number + 1) * BLOCK, self.used)]

    def load_block(self, number: int, frames: UInt8[np.ndarray, "slots height width"]) -> None:
        """Fill a block, after `load` said how many slots there are."""
        there = self.block(number)
        if there.shape != frames.shape:
            raise ValueError(f"block {number} has the shape {frames.shape} instead of {there.shape}")
        there[:] = frames

    def state(self) -> dict[str, np.ndarray]:
        """All but the pictures and the references, which whoever holds them repeats."""
        return {"used": np.asarray(self.used, np.int64), "free": np.array(self._free, np.int64)}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a `state`, before references and pictures are put back; nothing is referred to."""
        self.used = int(state["used"])
        while len(self._uses) < self.used:
            self._grow()
        self._uses[:] = 0
        self._uses[BLACK] = 1
        self._free = deque(state["free"].tolist())
        self._changed.clear()
