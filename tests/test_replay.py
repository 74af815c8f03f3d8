"""The ring against a deque: what is sampled, what is not, and how often."""

from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tremble.core import Transition
from tremble.replay import Replay, draw_sample


def numbered(k: int) -> Transition:
    """A transition whose every field tells its number."""
    return Transition(
        obs_tm1=jnp.array([k, -k], jnp.float32),
        action_tm1=jnp.asarray(k % 6, jnp.int32),
        reward_t=jnp.asarray(10.0 * k),
        discount_t=jnp.asarray(0.5 * k),
        obs_t=jnp.array([k + 1, -k - 1], jnp.float32),
    )


def numbers_in(batch: Transition) -> list[int]:
    """The numbers of a batch's transitions, after checking that no two were mixed."""
    k = np.asarray(batch.reward_t) / 10
    np.testing.assert_array_equal(batch.obs_tm1, np.stack([k, -k], -1))
    np.testing.assert_array_equal(batch.obs_t, np.stack([k + 1, -k - 1], -1))
    np.testing.assert_array_equal(batch.action_tm1, k % 6)
    np.testing.assert_array_equal(batch.discount_t, k / 2)
    return k.astype(int).tolist()


insert = jax.jit(Replay.insert)
sample = jax.jit(Replay.sample)


def everything(replay: Replay, count: int) -> set[int]:
    """All transitions that can be sampled: every remainder of the random bits occurs."""
    return set(numbers_in(sample(replay, jnp.arange(60, dtype=jnp.uint32), count)))


@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_the_ring_is_a_deque_without_its_newest(capacity: int):
    replay = Replay.init(capacity, numbered(0))
    assert replay.capacity == capacity
    past: deque[int] = deque(maxlen=capacity)
    for k in range(1, 3 * capacity + 5):
        # Number 0 would look like an empty slot, so numbering starts at 1 and the count of transitions at 0.
        count = k - 1
        if past:
            assert everything(replay, count) == set(past), "before the newest is stored"
        replay = insert(replay, count, numbered(k))
        if past:
            assert everything(replay, count) == set(past), "the newest is stored, but belongs to the future"
        past.append(k)


def test_age_counts_back_from_the_newest_that_may_be_sampled():
    replay = Replay.init(4, numbered(0))
    for k in range(11):
        replay = insert(replay, k, numbered(k))
    # After ten earlier ones: ages 0, 1, 2, 3 are numbers 9, 8, 7, 6; age 4 wraps to age 0.
    assert numbers_in(sample(replay, jnp.arange(5, dtype=jnp.uint32), 10)) == [9, 8, 7, 6, 9]


@pytest.mark.parametrize("count", [7, 30, 61])
def test_sampling_is_uniform(count: int):
    capacity = 20
    replay = Replay.init(capacity, numbered(0))
    for k in range(count + 1):
        replay = insert(replay, k, numbered(k))
    drawn = numbers_in(sample(replay, draw_sample(jax.random.key(count), 40_000), count))
    frequency = np.bincount(drawn, minlength=count + 1)
    allowed = np.arange(max(0, count - capacity), count)
    assert frequency[allowed].sum() == 40_000
    assert scipy.stats.chisquare(frequency[allowed]).pvalue > 1e-5


def test_draws_differ_by_key_and_do_not_repeat():
    first, second = (np.asarray(draw_sample(jax.random.key(k), 1000)) for k in (0, 1))
    assert first.dtype == np.uint32
    assert len(set(first)) > 990
    assert len(set(first) & set(second)) < 10


def test_inside_a_compiled_loop():
    capacity, steps, batch = 8, 40, 6
    noise = jax.vmap(lambda k: draw_sample(k, batch))(jax.random.split(jax.random.key(0), steps))

    def step(replay: Replay, inputs: tuple[jax.Array, jax.Array]) -> tuple[Replay, jax.Array]:
        count, bits = inputs
        x = count.astype(jnp.float32)
        new = Transition(x * jnp.array([1.0, -1.0]), count % 6, 10 * x, x / 2, (x + 1) * jnp.array([1.0, -1.0]))
        replay = replay.insert(count, new)
        return replay, replay.sample(bits, count).reward_t / 10

    _, drawn = jax.jit(lambda r: jax.lax.scan(step, r, (jnp.arange(steps), noise)))(Replay.init(capacity, numbered(0)))
    for count in range(1, steps):
        assert np.all(drawn[count] < count)
        assert np.all(drawn[count] >= max(0, count - capacity))
        ages = np.asarray(noise[count]) % min(count, capacity)
        np.testing.assert_array_equal(drawn[count], count - 1 - ages.astype(int))


def test_importance_weights_are_one_and_types_are_kept():
    replay = insert(Replay.init(3, numbered(0)), 0, numbered(4))
    batch = sample(replay, jnp.zeros(5, jnp.uint32), 1)
    assert batch.weight.tolist() == [1.0] * 5
    assert batch.action_tm1.dtype == jnp.int32
    assert batch.obs_tm1.dtype == jnp.float32
    compact = Transition(jnp.uint8(3), jnp.int8(2), jnp.float32(1), jnp.float32(0.9), jnp.uint8(4))
    stored = Replay.init(3, compact).insert(0, compact).store
    assert (stored.obs_tm1.dtype, stored.action_tm1.dtype) == (jnp.uint8, jnp.int8)
