"""A sum tree: sample slots in proportion to their priorities, and set priorities, in logarithmic time.

Written in NumPy because cpprb's compiled tree is part of a buffer that draws its own random numbers and stores float32,
so runs could not be resumed bit for bit, and sampling from it measured no faster.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int


class SumTree:
    """Binary trees of sums side by side, in one array: node i has children 2i and 2i + 1, and the slots are leaves.

    The nodes ``width`` to ``2 width - 1`` are the roots. One cumulative sum over them replaces the upper levels of a
    single tree, which would cost a dozen NumPy calls per level.

    Sums are always recomputed as left + right, never adjusted by a difference. So round-off does not accumulate, and
    the sums depend on the leaves alone: a tree rebuilt from saved leaves is equal bit for bit.
    """

    def __init__(self, capacity: int, width: int = 2048) -> None:
        """All priorities zero."""
        self.capacity = capacity
        self._first = _power_of_two(capacity)
        width = min(_power_of_two(width), self._first)
        self._depth = (self._first // width).bit_length() - 1
        self._sums = np.zeros(2 * self._first)
        self._roots = self._sums[width : 2 * width]

    @staticmethod
    def memory_estimate(capacity: int) -> int:
        """Bytes that a tree of this capacity takes."""
        return 2 * _power_of_two(capacity) * np.dtype(np.float64).itemsize

    def values(self, slots: Int[np.ndarray, "batch"]) -> Float64[np.ndarray, "batch"]:
        """Priorities of some slots."""
        return self._sums.take(slots + self._first)

    def set(self, slots: Int[np.ndarray, "batch"], values: Float64[np.ndarray, "batch"]) -> None:
        """Set the priorities of slots, finite and not negative; if a slot occurs twice, its last value counts."""
        sums, node = self._sums, slots + self._first
        sums[node] = values
        for _ in range(self._depth):
            node >>= 1
            left = node << 1
            sums[node] = sums.take(left) + sums.take(left + 1)

    def set_one(self, slot: int, value: float) -> None:
        """`set` for a single slot: several times as fast as with arrays of length 1."""
        sums, node = self._sums, slot + self._first
        sums[node] = value
        for _ in range(self._depth):
            node >>= 1
            sums[node] = sums[2 * node] + sums[2 * node + 1]

    def set_first(self, values: Float64[np.ndarray, "filled"]) -> None:
        """Set the priorities of slots 0, 1, ... and all others to zero, and rebuild the sums."""
        sums, end = self._sums, 2 * self._first
        sums[:] = 0
        sums[self._first : self._first + len(values)] = values
        for _ in range(self._depth):
            begin = end // 2
            sums[begin // 2 : begin] = sums[begin:end:2] + sums[begin + 1 : end : 2]
            end = begin

    def find(self, u: Float64[np.ndarray, "batch"]) -> Int[np.ndarray, "batch"]:
        """For each u in [0, 1) the slot s with sum_{i<s} p_i <= u * total < sum_{i<=s} p_i, up to round-off.

        Never a slot of priority zero, because no node of sum zero is entered. The chosen root has edges with
        left <= target < right. Below it, the target is at least 0, so where it is smaller than the left sum, that sum
        is positive; else the right child is entered, but only if its sum is; and if it is not, the left one's must be.
        """
        sums = self._sums
        edges = np.zeros(len(self._roots) + 1)
        np.cumsum(self._roots, out=edges[1:])
        if edges[-1] == 0:
            raise ValueError("nothing to find: all priorities are zero")
        # Between subnormal numbers the product can be rounded up to the total, beyond the last root.
        target = np.minimum(u * edges[-1], np.nextafter(edges[-1], 0))
        root = edges[1:].searchsorted(target, side="right")
        target -= edges.take(root)
        node = root + len(self._roots)
        for _ in range(self._depth):
            node <<= 1
            left = sums.take(node)
            right = (target >= left) & (sums.take(node + 1) > 0)
            target -= left * right
            node += right
        return node - self._first


def _power_of_two(least: int) -> int:
    """The smallest power of two that is at least ``least``."""
    if least < 1:
        raise ValueError(f"a tree needs at least one slot, got {least}")
    return 1 << (least - 1).bit_length()
