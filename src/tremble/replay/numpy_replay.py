"""Replay in NumPy, for environments that are not written in JAX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, UInt, UInt32

from tremble.core import Transition
from tremble.records import check_array
from tremble.replay.frame_store import FrameStore
from tremble.replay.priorities import SumTree
from tremble.replay.spec import ReplaySpec

FLOOR = 1e-6
"""Added to every loss, so that no item has priority zero."""


class Rows(NamedTuple):
    """A batch as one array: transferring it to JAX takes a fifth of the time of six arrays."""

    rows: UInt[np.ndarray, "batch words"] | UInt[Array, "batch words"]
    """Words of four bytes where all fields are made of them, else bytes."""
    weight: Float[np.ndarray, "batch"] | Float[Array, "batch"] | None
    """Importance weights; None where all are 1."""


def unpack(batch: Rows, layout: np.dtype[Any]) -> Transition:
    """The batch of transitions in ``batch.rows``, inside a compiled function."""
    n, places = batch.rows.shape[0], dict(layout.fields or {})
    unit = batch.rows.dtype.itemsize

    def field(name: str) -> Any:
        if name not in places:
            return None
        kind, offset = places[name][:2]
        base, shape = kind.subdtype or (kind, ())
        words = batch.rows[:, offset // unit : (offset + kind.itemsize) // unit]
        words = words.reshape(n, *shape, *([] if base.itemsize == unit else [base.itemsize]))
        return words != 0 if base == np.bool_ else jax.lax.bitcast_convert_type(words, base)

    weight = jnp.ones(n) if batch.weight is None else batch.weight
    return Transition(**{name: field(name) for name in Transition._fields} | {"weight": weight})


class DivergedError(ValueError):
    """Losses are not finite: there is nothing to learn from any more."""


class NumpyReplay:
    """A ring of rows ``[capacity]``, one an item, with every field of a transition that is an array.

    Item k lies in slot k mod capacity.

    Sampling is a function of given random bits and the contents. Uniformly, the same bits pick the same transitions as
    in `Replay`. By priority, item i has probability

        P_i = p_i^a / sum_j p_j^a,    weight_i = (size P_i)^(-b) / max over the batch,

    with p_i = |last loss| + 1e-6; an item that never was in a batch has the largest priority seen so far, at least 1.
    With rollouts the ring holds exactly one, and every sample is all of it.
    """

    frames: FrameStore | None = None
    """The store of pictures, which a `FrameReplay` has."""

    def __init__(self, capacity: int, example: Transition, spec: ReplaySpec, tree_capacity: int = 0) -> None:
        """Empty memory for items like ``example``.

        The rounding of sums of priorities depends on the size of their tree. ``tree_capacity`` makes it larger than the
        ring, for a run that is shorter than its memory and must have the numbers of a longer run.
        """
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        # np.zeros allocates lazily: pages take memory once they are written to.
        fields = _stored(example)
        layout = np.dtype([(name, field.dtype, field.shape) for name, field in fields.items()])
        self.layout: np.dtype[Any] | None = layout
        """Name, type and offset of the fields of a row; None where batches are not in rows."""
        items = np.zeros(capacity, layout)
        self._store = {name: items[name] for name in fields}
        in_words = all(field.dtype.itemsize == 4 for field in fields.values())
        self._rows = items.view(np.uint32 if in_words else np.uint8).reshape(capacity, -1)
        self._tree = SumTree(max(capacity, tree_capacity)) if spec.prioritised else None
        self._exponent = spec.priority_exponent
        self._whole = spec.rollout > 0
        self._largest = 1.0
        self.capacity = capacity
        self.count = 0
        """Items ever inserted."""

    @property
    def size(self) -> int:
        """Items that can be sampled."""
        return min(self.count, self.capacity)

    @property
    def ready(self) -> bool:
        """Whether there is something to sample: any item, or a whole rollout."""
        return self.size == self.capacity if self._whole else self.size > 0

    def keep(self, env: int, obs: Any, after: Any) -> tuple[Any, Any]:
        """What items store for the observations before and after a step: here, the observations themselves."""
        return obs, after

    def insert(self, item: Transition) -> None:
        """Store an item, in place of the oldest if the ring is full."""
        slot = self.count % self.capacity
        for name, value in zip(Transition._fields, item, strict=True):
            array = self._store.get(name)
            # NumPy would broadcast a wrong shape, and store a missing mask as "nothing allowed".
            if (array is None) != (value is None) or (array is not None and array.shape[1:] != np.shape(value)):
                raise ValueError(f"{name} of the item is not like the example's: {value!r}")
            if array is not None:
                array[slot] = value
        if self._tree is not None:
            self._tree.set_one(slot, self._largest**self._exponent)
        self.count += 1

    def sample(
        self, noise: UInt32[np.ndarray, "batch"], importance_exponent: float
    ) -> tuple[Transition, Int[np.ndarray, "batch"]]:
        """Items with replacement as a batch with importance weights, and their slots; of a rollout, each item once."""
        slots, weight = self._choose(noise, importance_exponent)
        fields = {name: array[slots] for name, array in self._store.items()}
        weight = np.ones(len(slots), np.float32) if weight is None else weight
        return Transition(**dict.fromkeys(Transition._fields) | fields | {"weight": weight}), slots

    def sample_batch(
        self, noise: UInt32[np.ndarray, "batch"], importance_exponent: float
    ) -> tuple[Transition | Rows, Int[np.ndarray, "batch"]]:
        """`sample` in the form that is transferred fastest."""
        slots, weight = self._choose(noise, importance_exponent)
        return Rows(self._rows.take(slots, axis=0), weight), slots

    def _choose(
        self, noise: UInt32[np.ndarray, "batch"], importance_exponent: float
    ) -> tuple[Int[np.ndarray, "batch"], Float[np.ndarray, "batch"] | None]:
        """The slots of a batch, and importance weights unless all are 1."""
        size = self.size
        if size == 0:
            raise ValueError("the replay memory is empty: insert before sampling")
        weight = None
        if self._whole:
            slots = np.arange(size)
        elif self._tree is None:
            # As in `Replay`: the remainder favours small ages by at most size / 2^32.
            age = (noise % np.uint32(size)).astype(np.int64)
            slots = (self.count - 1 - age) % self.capacity
        else:
            slots = self._tree.find((noise + 0.5) / 2**32)
            share = self._tree.values(slots)
            # The largest weight is that of the smallest P, and in the quotient size and sum cancel.
            weight = ((share / share.min()) ** -importance_exponent).astype(np.float32)
        return slots, weight

    def update_priorities(self, slots: Int[np.ndarray, "batch"], losses: Num[np.ndarray, "batch"]) -> None:
        """Set p = |loss| + 1e-6 for the items of a batch, before any later insert can overwrite them."""
        if self._tree is None:
            raise ValueError("the items of a uniform replay memory have no priorities")
        priorities = np.abs(losses, dtype=np.float64) + FLOOR
        largest = float(priorities.max())
        if not np.isfinite(largest):
            bad = np.flatnonzero(~np.isfinite(priorities))
            first = bad[0]
            raise DivergedError(
                f"{len(bad)} of {len(losses)} losses are not finite, the first {losses[first]} in slot {slots[first]}: "
                "a reward or an observation is not finite, or learning has diverged"
            )
        self._largest = max(self._largest, largest)
        self._tree.set(slots, priorities**self._exponent)

    def stored_as(self, name: str) -> np.dtype[Any]:
        """Type of one item's field, with its shape."""
        return np.dtype((self._store[name].dtype, self._store[name].shape[1:]))

    def state(self) -> dict[str, np.ndarray]:
        """A copy of everything that later samples depend on; of the ring only the filled part."""
        state = {name: array[: self.size].copy() for name, array in self._store.items()}
        state["count"] = np.asarray(self.count, np.int64)
        if self._tree is not None:
            state["priorities"] = self._tree.values(np.arange(self.size))
            state["largest_priority"] = np.asarray(self._largest, np.float64)
        return state

    def load(self, state: dict[str, np.ndarray], blocks: Iterable[np.ndarray] = ()) -> None:
        """Continue from a `state` of a memory with the same capacity, example and spec; there are no blocks."""
        count = int(check_array(state.get("count"), "count", np.int64, (), low=0))
        filled = min(count, self.capacity)
        expected: dict[str, tuple[Any, ...]] = {
            name: (array.dtype, (filled, *array.shape[1:])) for name, array in self._store.items()
        }
        expected["count"] = (np.dtype(np.int64), ())
        if self._tree is not None:
            expected["priorities"] = (np.dtype(np.float64), (filled,))
            expected["largest_priority"] = (np.dtype(np.float64), ())
        found = {name: (array.dtype, array.shape) for name, array in state.items()}
        if found != expected:
            names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
            raise ValueError(f"a replay memory saved under other settings: {', '.join(names)} do not fit this one")
        if self._tree is not None and not all(
            np.isfinite(state[name]).all() and (state[name] >= 0).all() for name in ("priorities", "largest_priority")
        ):
            raise ValueError("priorities are not positive numbers")
        for name, array in self._store.items():
            array[:filled] = state[name]
        self.count = count
        if self._tree is not None:
            self._tree.set_first(state["priorities"])
            self._largest = float(state["largest_priority"])


def memory_estimate(capacity: int, example: Transition, prioritised: bool, tree_capacity: int = 0) -> int:
    """Bytes that a `NumpyReplay` takes once it is full; nothing is allocated."""
    ring = capacity * sum(field.nbytes for field in _stored(example).values())
    return ring + (SumTree.memory_estimate(max(capacity, tree_capacity)) if prioritised else 0)


def readable(nbytes: int) -> str:
    """A number of bytes in words: ``12.3 MiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if round(size, 1) < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def _stored(example: Transition) -> dict[str, np.ndarray]:
    """The fields that items store. The weight is not among them: it belongs to a sample."""
    if example.weight is not None:
        raise ValueError("items have no weight: it is set when they are sampled")
    fields = {name: np.asarray(field) for name, field in example._asdict().items() if field is not None}
    # The types that JAX computes with: wider ones would be converted at every sample.
    return {name: field.astype(jax.dtypes.canonicalize_dtype(field.dtype)) for name, field in fields.items()}
