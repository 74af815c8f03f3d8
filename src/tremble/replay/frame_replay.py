"""Replay of stacked pictures that stores every picture once.

An Atari observation is the newest four pictures, so `NumpyReplay` would hold each picture eight times: in four
observations before a step, and in four after. For a million transitions that is 53 GiB, and 6.7 GiB here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8, UInt32

from tremble.core import Transition
from tremble.records import check_array
from tremble.replay.frame_store import BLACK, FrameStore
from tremble.replay.numpy_replay import NumpyReplay, memory_estimate
from tremble.replay.spec import ReplaySpec

SPARE = 0.02
"""Share of slots beyond one per transition, for the first picture of every episode; the store grows if needed."""


class FrameReplay(NumpyReplay):
    """`NumpyReplay` for observations ``[height, width, stack]`` of bytes, with the same items and the same samples.

    Items hold the slots of their pictures instead of the pictures. `keep` turns observations into slots, by comparing
    them with the last observation of the same environment; nothing is assumed about how episodes begin or how stacks
    are padded, so samples equal what was inserted in every case.
    """

    frames: FrameStore

    def __init__(
        self,
        capacity: int,
        example: Transition,
        spec: ReplaySpec,
        n_envs: int = 1,
        file: Path | None = None,
        tree_capacity: int = 0,
    ) -> None:
        """Empty memory for items like ``example``; pictures go to a memory-mapped file if one is named."""
        height, width, self._stack = example.obs_tm1.shape
        super().__init__(capacity, _with_slots(example), spec, tree_capacity)
        self.layout = None
        self.frames = FrameStore(_expected_frames(capacity, n_envs, spec.n_step), (height, width), file)
        # Per environment: the last observation, for comparison, and the slots that later items may still refer to.
        self._shown: list[UInt8[np.ndarray, "stack height width"] | None] = [None] * n_envs
        self._recent: list[deque[Int[np.ndarray, "stack"]]] = [deque() for _ in range(n_envs)]
        self._reach = spec.n_step + 1

    def keep(
        self, env: int, obs: UInt8[np.ndarray, "height width stack"], after: UInt8[np.ndarray, "height width stack"]
    ) -> tuple[Int[np.ndarray, "stack"], Int[np.ndarray, "stack"]]:
        """Slots of the observations before and after a step; insert its items before the next call."""
        return self._refer(env, obs), self._refer(env, after)

    def _refer(self, env: int, obs: np.ndarray) -> np.ndarray:
        """The slots of an observation's pictures; new pictures are stored."""
        planes, last, recent = np.ascontiguousarray(obs.transpose(2, 0, 1)), self._shown[env], self._recent[env]
        if last is not None and np.array_equal(planes, last):
            return recent[-1]
        if last is not None and np.array_equal(planes[:-1], last[1:]):  # one step later, nearly always
            slots = np.append(recent[-1][1:], self.frames.put(planes[-1]))
        else:
            slots = self._match(planes, last, recent[-1] if recent else None)
        slots = slots.astype(np.int32)
        self._shown[env] = planes
        self.frames.hold(slots.tolist())
        recent.append(slots)
        if len(recent) > self._reach:
            self.frames.release(recent.popleft().tolist())
        return slots

    def _match(self, planes: np.ndarray, last: np.ndarray | None, there: np.ndarray | None) -> np.ndarray:
        """Slots of a stack that is not the last one shifted by one: at the start of an episode."""
        slots: list[int] = []
        for k, plane in enumerate(planes):
            if not plane.any():
                slots.append(BLACK)
            elif k and np.array_equal(plane, planes[k - 1]):
                slots.append(slots[-1])
            elif last is not None and there is not None and np.array_equal(plane, last[k]):
                slots.append(int(there[k]))
            else:
                slots.append(self.frames.put(plane))
        return np.array(slots)

    def insert(self, item: Transition) -> None:
        """Store an item whose observations are slots, in place of the oldest if the ring is full."""
        self.frames.hold(item.obs_tm1.tolist() + item.obs_t.tolist())
        if self.size == self.capacity:
            oldest = self.count % self.capacity
            for name in ("obs_tm1", "obs_t"):
                self.frames.release(self._store[name][oldest].tolist())
        super().insert(item)

    def sample(
        self, noise: UInt32[np.ndarray, "batch"], importance_exponent: float
    ) -> tuple[Transition, Int[np.ndarray, "batch"]]:
        """Items with replacement as a batch with importance weights, and their slots.

        Observations are not contiguous in their last axis: the transfer to the device copies and reorders them anyway.
        """
        batch, slots = super().sample(noise, importance_exponent)
        pictures = self.frames.take(np.concatenate([batch.obs_tm1, batch.obs_t], axis=1)).transpose(0, 2, 3, 1)
        before, after = pictures[..., : self._stack], pictures[..., self._stack :]
        return batch._replace(obs_tm1=before, obs_t=after), slots

    def sample_batch(
        self, noise: UInt32[np.ndarray, "batch"], importance_exponent: float
    ) -> tuple[Transition, Int[np.ndarray, "batch"]]:
        """`sample`: pictures are gathered anyway, so rows would save nothing."""
        return self.sample(noise, importance_exponent)

    def state(self) -> dict[str, np.ndarray]:
        """Everything that later samples depend on except the pictures, which are in the blocks of ``frames``."""
        recent = [slots for deck in self._recent for slots in deck]
        return {
            **super().state(),
            **{f"frames_{name}": array for name, array in self.frames.state().items()},
            "recent_lengths": np.array([len(deck) for deck in self._recent], np.int64),
            "recent": np.stack(recent) if recent else np.zeros((0, self._stack), np.int32),
        }

    def load(self, state: dict[str, np.ndarray], blocks: Iterable[np.ndarray] = ()) -> None:
        """Continue from a `state` and its blocks of pictures."""
        own = {"recent_lengths", "recent", "frames_used", "frames_free"}
        if not own <= state.keys():
            raise ValueError("a replay memory saved under other settings: it does not hold stacked pictures")
        super().load({name: array for name, array in state.items() if name not in own})
        self.frames.load({"used": state["frames_used"], "free": state["frames_free"]}, blocks)
        lengths = check_array(state["recent_lengths"], "recent_lengths", np.int64, (len(self._recent),), low=0).tolist()
        if max(lengths) > self._reach:
            raise ValueError("a replay memory saved under another n_step or number of environments")
        check_array(state["recent"], "recent", np.int32, (sum(lengths), self._stack))
        held = [self._store[name][: self.size] for name in ("obs_tm1", "obs_t")]
        for slots in (state["recent"], *held):
            if slots.size and not (slots.min() >= 0 and slots.max() < self.frames.used):
                raise ValueError("the memory refers to pictures that were never stored")
        ends = np.cumsum(lengths).tolist()
        for env, (length, end) in enumerate(zip(lengths, ends, strict=True)):
            self._recent[env] = deque(state["recent"][end - length : end])
            self._shown[env] = self.frames.take(self._recent[env][-1]) if length else None
            for slots in self._recent[env]:
                self.frames.hold(slots.tolist())
        self.frames.hold_all(*held)


def frame_memory_estimate(
    capacity: int, example: Transition, spec: ReplaySpec, n_envs: int, tree_capacity: int = 0
) -> int:
    """Estimate of the bytes that a full `FrameReplay` takes; nothing is allocated."""
    height, width, _ = example.obs_tm1.shape
    items = memory_estimate(capacity, _with_slots(example), spec.prioritised, tree_capacity)
    return items + _expected_frames(capacity, n_envs, spec.n_step) * (height * width + 4)


def _expected_frames(capacity: int, n_envs: int, n_step: int) -> int:
    return int(capacity * (1 + SPARE)) + n_envs * (n_step + 8)


def _with_slots(example: Transition) -> Transition:
    slots = np.zeros(example.obs_tm1.shape[-1], np.int32)
    return example._replace(obs_tm1=slots, obs_t=slots)
