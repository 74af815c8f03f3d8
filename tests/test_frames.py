"""Replay that stores every picture once hands out what a plain memory of whole stacks hands out, bit for bit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremble.core import Transition
from tremble.replay import Accumulator, FrameReplay, NumpyReplay, ReplaySpec, frame_memory_estimate
from tremble.replay.frame_store import BLOCK, FrameStore

SHAPE = (5, 3)
PADDINGS = ("repeat_first", "zeros_after", "zeros_before")


def picture(rng: np.random.Generator) -> np.ndarray:
    """Sometimes black, and sometimes one that was there before: contents must not be taken for identities."""
    if rng.random() < 0.1:
        return np.zeros(SHAPE, np.uint8)
    if rng.random() < 0.1:
        return np.full(SHAPE, rng.integers(1, 3), np.uint8)
    return rng.integers(0, 256, SHAPE).astype(np.uint8)


def begun(first: np.ndarray, padding: str, stack: int) -> list[np.ndarray]:
    black = np.zeros_like(first)
    return {
        "repeat_first": [first] * stack,
        "zeros_after": [first],
        "zeros_before": [black] * (stack - 1) + [first],
    }[padding]


def shown(pictures: list[np.ndarray], stack: int) -> np.ndarray:
    """The newest pictures, black after them where there are too few."""
    newest = pictures[-stack:]
    return np.stack(newest + [np.zeros(SHAPE, np.uint8)] * (stack - len(newest)), -1)


def lives(seed: int, n_envs: int, steps: int, padding: str, stack: int, ends: float) -> Iterator[tuple[Any, ...]]:
    """Arguments of `Accumulator.add` from interleaved environments; some steps cut the return, but not the episode."""
    rng = np.random.default_rng(seed)
    pictures = [begun(picture(rng), padding, stack) for _ in range(n_envs)]
    for _ in range(steps):
        env = int(rng.integers(n_envs))
        obs = shown(pictures[env], stack)
        pictures[env].append(picture(rng))
        after = shown(pictures[env], stack)
        life_lost, over, cut = (bool(rng.random() < ends) for _ in range(3))
        yield env, obs, int(rng.integers(4)), float(rng.normal()), life_lost or over, cut, after
        if over or cut:
            pictures[env] = begun(picture(rng), padding, stack)


def example(stack: int) -> Transition:
    obs = jnp.zeros((*SHAPE, stack), jnp.uint8)
    zero = jnp.zeros(())
    return jax.tree.map(np.asarray, Transition(obs, jnp.zeros((), jnp.int32), zero, zero, obs))


class Both:
    """A plain memory and one of frames, fed the same steps."""

    def __init__(self, capacity: int, spec: ReplaySpec, n_envs: int, stack: int, file: Any = None):
        self.spec = spec
        self.plain = NumpyReplay(capacity, example(stack), spec)
        self.frames = FrameReplay(capacity, example(stack), spec, n_envs, file)
        self.of_plain, self.of_frames = (Accumulator(spec.n_step, 0.9, n_envs) for _ in range(2))

    def step(self, number: int, arguments: tuple[Any, ...], rng: np.random.Generator) -> None:
        env, obs, action, reward, terminated, truncated, after = arguments
        for item in self.of_plain.add(*arguments):
            self.plain.insert(item)
        held = self.frames.keep(env, obs, after)
        for item in self.of_frames.add(env, held[0], action, reward, terminated, truncated, held[1]):
            self.frames.insert(item)
        assert (self.plain.count, self.plain.size) == (self.frames.count, self.frames.size)
        if self.plain.size and number % 5 == 0:
            bits = rng.integers(2**32, size=12, dtype=np.uint32)
            (a, slots), (b, others) = (memory.sample(bits, 0.4) for memory in (self.plain, self.frames))
            same(a, b)
            np.testing.assert_array_equal(slots, others)
            if self.spec.prioritised:
                losses = rng.normal(size=12)
                self.plain.update_priorities(slots, losses)
                self.frames.update_priorities(slots, losses)


def same(a: Any, b: Any) -> None:
    (ours, one), (theirs, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    assert one == other
    for x, y in zip(ours, theirs, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 3]),
    st.sampled_from(PADDINGS),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 6, 40]),
    st.booleans(),
    st.sampled_from([0.02, 0.2]),
)
def test_samples_are_those_of_a_plain_memory(seed, n_envs, padding, stack, n_step, capacity, prioritised, ends):
    both = Both(capacity, ReplaySpec(n_step=n_step, prioritised=prioritised), n_envs, stack)
    rng = np.random.default_rng(seed + 1)
    for number, arguments in enumerate(lives(seed, n_envs, 130, padding, stack, ends)):
        both.step(number, arguments, rng)
    # Nothing is lost or kept too long: what is referred to and what is free make up all slots.
    store = both.frames.frames
    assert (store._uses[: store.used] > 0).sum() + len(store._free) == store.used
    assert not set(np.flatnonzero(store._uses)) & set(store._free)


@settings(max_examples=15)
@given(st.integers(0, 999), st.sampled_from([1, 3]), st.booleans(), st.sampled_from(PADDINGS), st.integers(0, 100))
def test_a_saved_memory_goes_on_as_if_nothing_had_happened(seed, n_step, prioritised, padding, cut):
    spec = ReplaySpec(n_step=n_step, prioritised=prioritised)
    both, rng = Both(25, spec, 3, 4), np.random.default_rng(seed)
    for number, arguments in enumerate(lives(seed, 3, 120, padding, 4, 0.1)):
        if number == cut:
            state, blocks = both.frames.state(), [both.frames.frames.block(0).copy()]
            pending = both.of_frames.state()
            # What was there before must not shine through.
            resumed = Both(25, spec, 3, 4)
            for other in lives(seed + 1, 3, 40, padding, 4, 0.1):
                resumed.step(0, other, np.random.default_rng(0))
            both.frames, both.of_frames = resumed.frames, Accumulator(n_step, 0.9, 3)
            both.frames.load(state, blocks)
            both.of_frames.load(pending, both.frames.stored_as("obs_tm1"))
            again = both.frames.state()
            assert state.keys() == again.keys()
            for name in state:
                np.testing.assert_array_equal(state[name], again[name])
        both.step(number, arguments, rng)


def test_the_memory_of_other_settings_is_refused():
    both, rng = Both(5, ReplaySpec(), 3, 4), np.random.default_rng(0)
    for number, arguments in enumerate(lives(0, 3, 20, "repeat_first", 4, 0.1)):
        both.step(number, arguments, rng)
    state, blocks = both.frames.state(), [both.frames.frames.block(0)]
    with pytest.raises(ValueError, match="recent_lengths is int64"):
        FrameReplay(5, example(4), ReplaySpec(), 2).load(state, blocks)
    with pytest.raises(ValueError, match="does not hold stacked pictures"):
        FrameReplay(5, example(4), ReplaySpec(), 3).load(both.plain.state(), blocks)
    with pytest.raises(ValueError, match="other settings"):
        FrameReplay(6, example(4), ReplaySpec(), 3).load(state, blocks)
    with pytest.raises(ValueError, match="do not fit"):
        FrameReplay(5, example(4), ReplaySpec(), 3).load(state, [blocks[0][:-1]])


def test_a_step_stores_one_picture():
    # 200 steps in episodes of 20 show 210 pictures; the black one has a slot besides.
    for padding in PADDINGS:
        memory, rng = FrameReplay(1000, example(4), ReplaySpec()), np.random.default_rng(0)
        for _ in range(10):
            pictures = begun(rng.integers(1, 256, SHAPE).astype(np.uint8), padding, 4)
            for _ in range(20):
                obs = shown(pictures, 4)
                pictures.append(rng.integers(1, 256, SHAPE).astype(np.uint8))
                memory.keep(0, obs, shown(pictures, 4))
        assert memory.frames.used <= 211


def test_memory_stays_within_its_bill_over_many_rounds():
    capacity, memory = 300, FrameReplay(300, example(4), ReplaySpec())
    accumulator = Accumulator(1, 0.9, 1)
    for arguments in lives(3, 1, 1500, "repeat_first", 4, 0.005):
        env, obs, action, reward, terminated, truncated, after = arguments
        held = memory.keep(env, obs, after)
        for item in accumulator.add(env, held[0], action, reward, terminated, truncated, held[1]):
            memory.insert(item)
    promised = frame_memory_estimate(capacity, example(4), ReplaySpec(), 1)
    stored = memory.frames.used * (SHAPE[0] * SHAPE[1] + memory.frames._uses.itemsize)
    assert memory._rows.nbytes + stored <= 1.1 * promised
    assert memory.frames._frames.nbytes <= 1.1 * capacity * SHAPE[0] * SHAPE[1]


def test_a_million_frames_cost_what_they_must():
    obs = jnp.zeros((84, 84, 4), jnp.uint8)
    zero = jnp.zeros(())
    atari = jax.tree.map(np.asarray, Transition(obs, jnp.zeros((), jnp.int32), zero, zero, obs))
    pictures, items = 1_000_000 * 84 * 84, 1_000_000 * (2 * 4 * 4 + 3 * 4)
    assert pictures + items < frame_memory_estimate(1_000_000, atari, ReplaySpec(), 1) < 1.03 * (pictures + items)


# --- the store of pictures --------------------------------------------------------------------------------------------


def numbered(k: int) -> np.ndarray:
    return np.full(SHAPE, k % 255 + 1, np.uint8)


def test_slots_go_round_and_growing_keeps_what_is_there(tmp_path):
    for file in (None, tmp_path / "frames"):
        store = FrameStore(4, SHAPE, file)
        slots = [store.put(numbered(k)) for k in range(11)]
        assert slots == list(range(1, 12)), "room was made for seven more"
        store.hold(slots)
        store.release([3, 1, 2])
        assert [store.put(numbered(50 + k)) for k in range(4)] == [3, 1, 2, 12]
        expected = [numbered(51), numbered(52), numbered(50), *(numbered(k) for k in range(3, 11)), numbered(53)]
        np.testing.assert_array_equal(store.take(np.arange(1, 13)), np.stack(expected))
        assert not store.take(np.array([0])).any()


def test_a_picture_stays_as_long_as_anything_refers_to_it():
    store = FrameStore(4, SHAPE)
    slot = store.put(numbered(0))
    store.hold([slot, slot])
    store.release([slot])
    assert store.put(numbered(1)) != slot
    store.release([slot])
    assert store.put(numbered(2)) == slot


def test_only_blocks_that_changed_are_named():
    store = FrameStore(3 * BLOCK, (1, 1))
    slots = [store.put(np.ones((1, 1), np.uint8)) for _ in range(2 * BLOCK + 10)]
    store.hold(slots)
    assert store.changed() == [0, 1, 2]
    store.saved()
    assert store.changed() == []
    store.release([BLOCK + 5])
    store.put(np.ones((1, 1), np.uint8))
    assert store.changed() == [1]
    assert [len(store.block(k)) for k in range(3)] == [BLOCK, BLOCK, 11]


def test_pictures_in_a_file_are_the_same(tmp_path):
    both, rng = Both(30, ReplaySpec(), 2, 4, tmp_path / "frames"), np.random.default_rng(0)
    for number, arguments in enumerate(lives(0, 2, 150, "zeros_after", 4, 0.1)):
        both.step(number, arguments, rng)
    assert (tmp_path / "frames").stat().st_size > 30 * SHAPE[0] * SHAPE[1]


@pytest.mark.long
def test_a_million_transitions_take_what_the_bill_says():
    """Resident memory of the process, filled for real; pages that nobody wrote to would not count."""
    if not hasattr(os, "sysconf") or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 9 * 2**30:
        pytest.skip("needs 9 GiB of free memory")
    capacity, rng = 1_000_000, np.random.default_rng(0)
    obs = np.zeros((84, 84, 4), np.uint8)
    zero = jnp.zeros(())
    atari = jax.tree.map(np.asarray, Transition(obs, jnp.zeros((), jnp.int32), zero, zero, obs))
    promised = frame_memory_estimate(capacity, atari, ReplaySpec(), 1)
    scenery = rng.integers(1, 256, (997, 84, 84)).astype(np.uint8)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    replay, steps = FrameReplay(capacity, atari, ReplaySpec()), Accumulator(1, 0.99, 1)
    pictures = deque([scenery[0]] * 4, 4)
    for t in range(1, capacity + 5_000):  # past the end, so that old pictures make room
        seen = np.stack(pictures, -1)
        over = t % 900 == 0
        pictures.append(scenery[t % 997])
        ids = replay.keep(0, seen, np.stack(pictures, -1))
        for item in steps.add(0, ids[0], 0, 0.0, over, False, ids[1]):
            replay.insert(item)
        if over:
            pictures.extend([scenery[t % 991]] * 4)
    assert 0.95 * promised < resident() - before < 1.1 * promised, (resident() - before, promised)
