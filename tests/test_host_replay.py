"""The host's replay memory: n-step windows by hand and by brute force, the ring beside the compiled one, priorities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tremble.core import Transition
from tremble.replay import Accumulator, NumpyReplay, Replay, ReplaySpec, SumTree, memory_estimate, readable, unpack

UNIFORM, PRIORITISED = ReplaySpec(), ReplaySpec(prioritised=True)


def numbered(k: int, masked: bool = False) -> Transition:
    """An item of NumPy arrays whose every field tells its number."""
    item = Transition(
        obs_tm1=jnp.array([k, -k], jnp.float32),
        action_tm1=jnp.asarray(k % 6, jnp.int32),
        reward_t=jnp.asarray(10.0 * k),
        discount_t=jnp.asarray(0.5 * k),
        obs_t=jnp.array([k + 1, -k - 1], jnp.float32),
        mask_t=jnp.array([k % 2 == 0, k % 3 == 0, True]) if masked else None,
    )
    return jax.tree.map(np.asarray, item)


def numbers_in(batch: Transition) -> list[int]:
    """The numbers of a batch's items, after checking that no two were mixed."""
    k = np.asarray(batch.reward_t) / 10
    np.testing.assert_array_equal(batch.obs_tm1, np.stack([k, -k], -1))
    np.testing.assert_array_equal(batch.obs_t, np.stack([k + 1, -k - 1], -1))
    np.testing.assert_array_equal(batch.action_tm1, k % 6)
    np.testing.assert_array_equal(batch.discount_t, k / 2)
    return k.astype(int).tolist()


def filled(capacity: int, count: int, spec: ReplaySpec, masked: bool = False) -> NumpyReplay:
    replay = NumpyReplay(capacity, numbered(0, masked), spec)
    for k in range(count):
        replay.insert(numbered(k, masked))
    return replay


def bits(seed: int, batch: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(2**32, size=batch, dtype=np.uint32)


def through_a_file(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return safetensors.numpy.load(safetensors.numpy.save(state))


def same(a: Any, b: Any) -> bool:
    """Equal structure, types, shapes and bits."""
    (ours, one), (theirs, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    return one == other and all(
        np.asarray(x).dtype == np.asarray(y).dtype and np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True)
    )


# --- n-step windows, by hand ------------------------------------------------------------------------------------------


def episode(accumulator: Accumulator, rewards: list[float], end: str, env: int = 0) -> list[Transition]:
    """One episode with observations 0, 1, 2, ... and actions 0, 1, 2, ...; ``end`` is "terminated" or "truncated"."""
    items = []
    for t, reward in enumerate(rewards):
        last = t == len(rewards) - 1
        items += accumulator.add(
            env,
            np.float32([t]),
            t,
            reward,
            last and end == "terminated",
            last and end == "truncated",
            np.float32([t + 1]),
        )
    return items


def table(items: list[Transition]) -> list[tuple[float, int, float, float, float]]:
    return [
        (float(i.obs_tm1[0]), int(i.action_tm1), float(i.reward_t), float(i.discount_t), float(i.obs_t[0]))
        for i in items
    ]


def test_two_steps_terminated():
    # gamma = 1/2, rewards 1, 2, 4, 8, terminal after the last:
    #   start 0: 1 + 2/2 = 2, discount 1/4, observation 2
    #   start 1: 2 + 4/2 = 4, discount 1/4, observation 3
    #   start 2: 4 + 8/2 = 8, terminal:  0, observation 4
    #   start 3: 8,           terminal:  0, observation 4
    items = episode(Accumulator(2, 0.5, 1), [1, 2, 4, 8], "terminated")
    assert table(items) == [(0, 0, 2, 0.25, 2), (1, 1, 4, 0.25, 3), (2, 2, 8, 0, 4), (3, 3, 8, 0, 4)]


def test_three_steps_truncated():
    # gamma = 1/2, rewards 1, 2, 4, 8, cut off after the last, which still has a value:
    #   start 0: 1 + 2/2 + 4/4 = 3, discount 1/8, observation 3
    #   start 1: 2 + 4/2 + 8/4 = 6, discount 1/8, observation 4
    #   start 2: 4 + 8/2       = 8, discount 1/4, observation 4
    #   start 3: 8,                 discount 1/2, observation 4
    items = episode(Accumulator(3, 0.5, 1), [1, 2, 4, 8], "truncated")
    assert table(items) == [(0, 0, 3, 0.125, 3), (1, 1, 6, 0.125, 4), (2, 2, 8, 0.25, 4), (3, 3, 8, 0.5, 4)]


def test_windows_longer_than_the_episode():
    # n = 5, two steps of rewards 4, 8: start 0 has 4 + 8/2 = 8, start 1 has 8.
    accumulator = Accumulator(5, 0.5, 1)
    assert table(episode(accumulator, [4, 8], "truncated")) == [(0, 0, 8, 0.25, 2), (1, 1, 8, 0.5, 2)]
    assert table(episode(accumulator, [4, 8], "terminated")) == [(0, 0, 8, 0, 2), (1, 1, 8, 0, 2)]


def test_terminated_counts_more_than_truncated_in_the_same_step():
    (item,) = Accumulator(1, 0.9, 1).add(0, [0.0], 0, 1.0, True, True, [1.0])
    assert item.discount_t == 0


def test_one_step_is_the_step_itself():
    accumulator = Accumulator(1, 0.99, 1)
    for reward in (0.1, -1e-30, 1e30, np.float32(0.3), 7):
        (item,) = accumulator.add(0, [0.0], 2, reward, False, False, [1.0])
        assert item.reward_t == np.float32(reward)
        assert item.discount_t == np.float32(0.99)
        assert (item.reward_t.dtype, item.discount_t.dtype, item.action_tm1.dtype) == (np.float32, np.float32, np.int32)
        assert item.weight is None
        assert item.mask_t is None
    assert accumulator.state()["pending"].tolist() == [0]


def test_the_mask_is_the_one_after_the_window():
    accumulator = Accumulator(2, 0.5, 1)
    assert accumulator.add(0, [0.0], 0, 1.0, False, False, [1.0], [True, False]) == []
    (item,) = accumulator.add(0, [1.0], 0, 1.0, False, False, [2.0], [False, True])
    assert item.mask_t.tolist() == [False, True]
    assert item.mask_t.dtype == bool


def test_an_environment_may_reuse_its_array():
    accumulator, screen = Accumulator(2, 1.0, 1), np.zeros(1, np.float32)
    accumulator.add(0, screen, 0, 1.0, False, False, screen)
    screen[0] = 1
    (item,) = accumulator.add(0, screen, 0, 1.0, False, False, screen)
    screen[0] = 2
    assert (item.obs_tm1.tolist(), item.obs_t.tolist()) == ([0], [1])


def test_dropping_forgets_one_environment_only():
    accumulator = Accumulator(3, 0.5, 2)
    for env in (0, 1):
        accumulator.add(env, [0.0], 0, 100.0, False, False, [1.0])
    accumulator.drop(0)
    assert accumulator.state()["pending"].tolist() == [0, 1]
    assert [i.reward_t for i in accumulator.add(0, [0.0], 0, 1.0, True, False, [1.0])] == [1]
    assert [i.reward_t for i in accumulator.add(1, [1.0], 0, 1.0, True, False, [2.0])] == [100.5, 1]


@pytest.mark.parametrize(("n_step", "n_envs"), [(0, 1), (1, 0)])
def test_nonsense_is_refused(n_step: int, n_envs: int):
    with pytest.raises(ValueError, match="at least 1"):
        Accumulator(n_step, 0.9, n_envs)


# --- n-step windows, against brute force ------------------------------------------------------------------------------

Step = tuple[int, float, bool, bool]
"""Environment, reward, terminated, truncated."""


@st.composite
def histories(draw: Any) -> tuple[int, float, int, list[Step]]:
    """n, gamma, number of environments, and steps. Episodes come from a seed: drawn ones would mostly be too short."""
    n_step, n_envs = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    gamma, ends = draw(st.sampled_from([0.5, 0.9, 0.99, 1.0])), draw(st.sampled_from([0.02, 0.1, 0.3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = [
        (int(rng.integers(n_envs)), float(rng.normal()), bool(rng.random() < ends), bool(rng.random() < ends))
        for _ in range(80)
    ]
    return n_step, gamma, n_envs, steps


def fed(n_envs: int, steps: list[Step]) -> Iterator[tuple[Any, ...]]:
    """Arguments of `Accumulator.add`; observations are (environment, episode, time)."""
    episodes, times = [0] * n_envs, [0] * n_envs
    for number, (env, reward, terminated, truncated) in enumerate(steps):
        obs, after = (np.array([env, episodes[env], times[env] + k], np.int32) for k in (0, 1))
        yield env, obs, number % 5, reward, terminated, truncated, after, np.array([number % 2 == 0, True])
        times[env] += 1
        if terminated or truncated:
            episodes[env], times[env] = episodes[env] + 1, 0


def oracle(n_step: int, gamma: float, arguments: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Items of one environment, each from a search through everything that ever happened to it."""
    items = []
    for t, (_, obs, action, *_) in enumerate(arguments):
        window = []
        for step in arguments[t : t + n_step]:
            window.append(step)
            if step[4] or step[5]:
                break
        _, _, _, _, terminated, truncated, after, mask = window[-1]
        if len(window) == n_step or terminated or truncated:
            reward = float(np.dot(gamma ** np.arange(len(window)), [step[3] for step in window]))
            items.append((obs, action, reward, 0.0 if terminated else gamma ** len(window), after, mask))
    return items


@given(histories())
def test_items_of_interleaved_environments(history: tuple[int, float, int, list[Step]]):
    n_step, gamma, n_envs, steps = history
    accumulator = Accumulator(n_step, gamma, n_envs)
    arguments = list(fed(n_envs, steps))
    found: list[list[Transition]] = [[] for _ in range(n_envs)]
    for step in arguments:
        found[step[0]] += accumulator.add(*step)
    for env in range(n_envs):
        own = [step for step in arguments if step[0] == env]
        expected = oracle(n_step, gamma, own)
        assert len(found[env]) == len(expected)
        for item, (obs, action, reward, discount, after, mask) in zip(found[env], expected, strict=True):
            np.testing.assert_array_equal(item.obs_tm1, obs)
            np.testing.assert_array_equal(item.obs_t, after)
            np.testing.assert_array_equal(item.mask_t, mask)
            assert item.action_tm1 == action
            np.testing.assert_allclose(item.reward_t, reward, rtol=1e-6, atol=1e-6)
            assert item.discount_t == np.float32(discount)
            assert item.obs_tm1[:2].tolist() == item.obs_t[:2].tolist(), "a window straddles episodes"
            assert 1 <= item.obs_t[2] - item.obs_tm1[2] <= n_step
        # Every finished episode gave one item per step.
        ends = [k for k, step in enumerate(own) if step[4] or step[5]]
        for number, (begin, end) in enumerate(zip([-1, *ends], ends, strict=False)):
            assert sum(item.obs_tm1[1] == number for item in found[env]) == end - begin


@given(histories(), st.integers(0, 70))
def test_what_is_pending_survives_a_file(history: tuple[int, float, int, list[Step]], cut: int):
    n_step, gamma, n_envs, steps = history
    whole, resumed = Accumulator(n_step, gamma, n_envs), Accumulator(n_step, gamma, n_envs)
    for number, step in enumerate(fed(n_envs, steps)):
        items = whole.add(*step)
        if number < cut:
            continue
        if number > cut:
            assert same(items, resumed.add(*step))
        else:
            state = through_a_file(whole.state())
            resumed.load(state, np.dtype((state["obs"].dtype, state["obs"].shape[1:])))
        assert same(whole.state(), resumed.state())


def test_pending_steps_of_other_settings_are_refused():
    accumulator = Accumulator(3, 0.9, 1)
    for t in range(2):
        accumulator.add(0, [t], 0, 1.0, False, False, [t + 1])
    for other in (Accumulator(2, 0.9, 1), Accumulator(3, 0.9, 2)):
        with pytest.raises(ValueError, match="another n_step"):
            other.load(accumulator.state(), np.dtype((np.int64, (1,))))


# --- the ring, uniformly ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_the_same_bits_pick_the_same_transitions_as_in_the_compiled_loop(masked: bool):
    capacity = 5
    compiled = Replay.init(capacity, jax.tree.map(jnp.asarray, numbered(0, masked)))
    insert, sample = jax.jit(Replay.insert), jax.jit(Replay.sample)
    host = NumpyReplay(capacity, numbered(0, masked), UNIFORM)
    for count in range(1, 18):
        compiled = insert(compiled, count - 1, jax.tree.map(jnp.asarray, numbered(count - 1, masked)))
        host.insert(numbered(count - 1, masked))
        noise = bits(count, 40)
        batch, _ = host.sample(noise, 0.4)
        assert same(batch, sample(compiled, jnp.asarray(noise), count))


@pytest.mark.parametrize("spec", [UNIFORM, PRIORITISED])
@pytest.mark.parametrize("capacity", [1, 2, 5])
def test_the_ring_overwrites_the_oldest(capacity: int, spec: ReplaySpec):
    replay = NumpyReplay(capacity, numbered(0), spec)
    assert (replay.size, replay.count) == (0, 0)
    # All remainders, and all parts of the range.
    every = np.concatenate([np.arange(60), np.arange(0, 2**32, 2**26)]).astype(np.uint32)
    for k in range(3 * capacity + 2):
        replay.insert(numbered(k))
        assert (replay.size, replay.count) == (min(k + 1, capacity), k + 1)
        batch, slots = replay.sample(every, 0.4)
        assert set(numbers_in(batch)) == set(range(max(0, k + 1 - capacity), k + 1))
        assert [number % capacity for number in numbers_in(batch)] == slots.tolist()


@pytest.mark.parametrize("count", [7, 20, 61])
def test_uniform_sampling_is_uniform(count: int):
    batch, _ = filled(20, count, UNIFORM).sample(bits(count, 40_000), 0.4)
    frequency = np.bincount(numbers_in(batch), minlength=count)[max(0, count - 20) :]
    assert frequency.sum() == 40_000
    assert scipy.stats.chisquare(frequency).pvalue > 1e-5
    assert batch.weight.dtype == np.float32
    assert np.all(batch.weight == 1)


def test_types_are_kept_and_only_arrays_are_stored():
    item = jax.tree.map(
        np.asarray, Transition(jnp.uint8(3), jnp.asarray(2, jnp.int8), jnp.float32(1), jnp.float32(0.9), jnp.uint8(4))
    )
    replay = NumpyReplay(3, item, UNIFORM)
    replay.insert(item)
    assert set(replay.state()) == {"obs_tm1", "action_tm1", "reward_t", "discount_t", "obs_t", "count"}
    batch, _ = replay.sample(np.zeros(2, np.uint32), 0.4)
    assert (batch.obs_tm1.dtype, batch.action_tm1.dtype, batch.mask_t) == (np.uint8, np.int8, None)
    assert batch.obs_t.tolist() == [4, 4]


@pytest.mark.parametrize("spec", [UNIFORM, PRIORITISED], ids=["uniform", "prioritised"])
@pytest.mark.parametrize("odd", [False, True], ids=["plain", "masks, bytes and extras"])
def test_rows_unpack_to_the_sample_they_are(spec: ReplaySpec, odd: bool):
    rng = np.random.default_rng(0)

    def item() -> Transition:
        picture = rng.integers(256, size=(3, 5), dtype=np.uint8)
        obs = picture if odd else rng.normal(size=4).astype(np.float32)
        extra = rng.integers(-3, 3, size=2).astype(np.int8) if odd else None
        number = rng.normal(size=2).astype(np.float32)
        mask = rng.random(3) < 0.5 if odd else None
        return Transition(obs, np.asarray(rng.integers(6), np.int32), number[0], number[1], obs + 1, None, mask, extra)

    replay = NumpyReplay(8, item(), spec)
    for _ in range(11):
        replay.insert(item())
    rows, slots = replay.sample_batch(bits(1, 16), 0.4)
    batch, same_slots = replay.sample(bits(1, 16), 0.4)
    assert np.array_equal(slots, same_slots)
    assert (rows.weight is None) == (not spec.prioritised)
    assert same(jax.tree.map(np.asarray, jax.jit(unpack, static_argnums=1)(rows, replay.layout)), batch)


def test_numbers_are_stored_as_wide_as_they_are_computed_with():
    wide = numbered(0)._replace(reward_t=np.float64(0.1), action_tm1=np.int64(3))
    replay = NumpyReplay(2, wide, UNIFORM)
    replay.insert(wide)
    batch, _ = replay.sample(np.zeros(1, np.uint32), 0.4)
    assert (batch.reward_t.dtype, batch.action_tm1.dtype) == (np.float32, np.int32)
    assert batch.reward_t[0] == np.float32(0.1)


def test_a_sample_is_a_copy():
    replay = filled(1, 1, UNIFORM)
    batch, _ = replay.sample(np.zeros(2, np.uint32), 0.4)
    replay.insert(numbered(8))
    assert numbers_in(batch) == [0, 0]


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        NumpyReplay(0, numbered(0), UNIFORM)
    with pytest.raises(ValueError, match="empty"):
        NumpyReplay(3, numbered(0), UNIFORM).sample(np.zeros(2, np.uint32), 0.4)
    with pytest.raises(ValueError, match="no priorities"):
        filled(3, 1, UNIFORM).update_priorities(np.zeros(1, np.int64), np.ones(1))
    with pytest.raises(ValueError, match="mask_t"):
        filled(3, 1, UNIFORM).insert(numbered(1, masked=True))
    with pytest.raises(ValueError, match="mask_t"):
        filled(3, 1, UNIFORM, masked=True).insert(numbered(1))
    batch, _ = filled(3, 1, UNIFORM).sample(np.zeros(2, np.uint32), 0.4)
    with pytest.raises(ValueError, match="weight"):
        NumpyReplay(3, batch, UNIFORM)
    with pytest.raises(ValueError, match="obs_tm1"):
        filled(3, 1, UNIFORM).insert(narrow())


def narrow() -> Transition:
    """An item whose observations have too few entries."""
    one, zero = jnp.ones(()), jnp.zeros((), jnp.int32)
    return jax.tree.map(np.asarray, Transition(jnp.ones(1), zero, one, one, jnp.ones(1)))


# --- the sum tree -----------------------------------------------------------------------------------------------------

WIDTHS = st.sampled_from([1, 4, 2048])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.lists(st.floats(0, 1, exclude_max=True)), WIDTHS)
def test_finding_is_a_search_in_cumulative_sums(priorities: list[int], draws: list[float], width: int):
    # Whole numbers, so that no sum is rounded and even draws on the edges must agree.
    p = np.array(priorities, float)
    tree = SumTree(len(p), width)
    tree.set(np.arange(len(p)), p)
    assert tree._roots.sum() == p.sum()
    np.testing.assert_array_equal(tree.values(np.arange(len(p))), p)
    if p.sum() == 0:
        with pytest.raises(ValueError, match="all priorities are zero"):
            tree.find(np.zeros(1))
        return
    edges = np.concatenate([[0], np.cumsum(p)])
    u = np.concatenate([draws, edges[edges < p.sum()] / p.sum()])
    # A product that was rounded up to the sum belongs to the last slot that has a priority.
    slots = np.minimum(np.searchsorted(edges[1:], u * p.sum(), side="right"), np.flatnonzero(p)[-1])
    np.testing.assert_array_equal(tree.find(u), slots)


@given(st.integers(1, 200), st.floats(0, 0.9), st.integers(0, 2**32 - 1), WIDTHS)
def test_what_has_no_priority_is_never_found(capacity: int, empty: float, seed: int, width: int):
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(capacity) < empty, 0.0, np.exp(5 * rng.normal(size=capacity)))
    p[rng.integers(capacity)] = 1.0
    tree = SumTree(capacity, width)
    tree.set(np.arange(capacity), p)
    # Where round-off can do harm: at the edges between slots, and just beside them.
    edges = np.cumsum(p) / p.sum()
    u = np.concatenate([[0.0, np.nextafter(1, 0)], edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    found = tree.find(u[u < 1])
    assert np.all(tree.values(found) > 0)


@pytest.mark.parametrize("width", [1, 2048])
def test_the_smallest_priority_of_all_is_found(width: int):
    tree = SumTree(4, width)
    tree.set_one(1, 5e-324)  # times almost one, this is rounded to itself
    assert tree.find(np.array([0.0, 0.5, np.nextafter(1, 0)])).tolist() == [1, 1, 1]


@given(
    st.integers(1, 40).flatmap(
        lambda capacity: st.tuples(
            st.just(capacity),
            st.lists(st.lists(st.tuples(st.integers(0, capacity - 1), st.floats(0, 1e6)), min_size=1, max_size=20)),
        )
    ),
    WIDTHS,
)
def test_the_sums_depend_on_the_leaves_alone(case: tuple[int, list[list[tuple[int, float]]]], width: int):
    capacity, calls = case
    together, single, rebuilt = (SumTree(capacity, width) for _ in range(3))
    leaves = np.zeros(capacity)
    for call in calls:
        slots, values = (np.array(column) for column in zip(*call, strict=True))
        together.set(slots, values.astype(float))
        for slot, value in call:
            single.set_one(slot, value)
            leaves[slot] = value  # so of several values for one slot the last counts
    rebuilt.set_first(leaves)
    np.testing.assert_array_equal(together.values(np.arange(capacity)), leaves)
    np.testing.assert_array_equal(together._sums, rebuilt._sums)
    np.testing.assert_array_equal(single._sums, rebuilt._sums)


def test_of_many_values_for_one_slot_the_last_counts():
    tree = SumTree(3)
    tree.set(np.zeros(1000, np.int64), np.arange(1000.0))
    assert tree._roots.sum() == 999


@pytest.mark.parametrize("capacity", [7, 5000])
def test_finding_is_proportional(capacity: int):
    p = np.random.default_rng(0).random(capacity) + 0.1
    p[::3] = 0
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), p)
    frequency = np.bincount(tree.find(np.random.default_rng(1).random(200_000)), minlength=capacity)
    assert np.all(frequency[p == 0] == 0)
    assert scipy.stats.chisquare(frequency[p > 0], 200_000 * p[p > 0] / p.sum()).pvalue > 1e-5


# --- the ring, by priority --------------------------------------------------------------------------------------------


def test_probabilities_and_importance_weights():
    spec = ReplaySpec(prioritised=True, priority_exponent=0.7)
    replay = filled(6, 4, spec)
    losses = np.array([0.5, -2.0, 0.0, 8.0], np.float32)
    replay.update_priorities(np.arange(4), losses)
    share = (np.abs(losses.astype(float)) + 1e-6) ** 0.7
    probability = share / share.sum()
    batch, slots = replay.sample(bits(0, 50_000), 0.4)
    assert numbers_in(batch) == slots.tolist()
    seen = np.array([0, 1, 3])  # the third has probability 0.00002
    frequency = np.bincount(slots, minlength=4)
    assert scipy.stats.chisquare(frequency[seen], frequency[seen].sum() * share[seen] / share[seen].sum()).pvalue > 1e-5
    weight = (replay.size * probability[slots]) ** -0.4
    np.testing.assert_allclose(batch.weight, weight / weight.max(), rtol=1e-6)
    assert batch.weight.dtype == np.float32


def test_weights_are_relative_to_the_batch():
    replay = filled(4, 4, PRIORITISED)
    replay.update_priorities(np.arange(4), np.array([1e-3, 1.0, 1.0, 1.0]))
    batch, slots = replay.sample(np.array([2**31, 2**32 - 1], np.uint32), 1.0)
    assert 0 not in slots
    assert batch.weight.tolist() == [1, 1]


def test_no_importance_and_no_priority_are_uniform():
    replay = filled(3, 3, ReplaySpec(prioritised=True, priority_exponent=0.0))
    replay.update_priorities(np.arange(3), np.array([0.0, 1.0, 100.0]))
    batch, slots = replay.sample(bits(0, 30_000), 0.4)
    assert np.all(batch.weight == 1)
    assert scipy.stats.chisquare(np.bincount(slots, minlength=3)).pvalue > 1e-5
    skewed = filled(3, 3, PRIORITISED)
    skewed.update_priorities(np.arange(3), np.array([0.1, 1.0, 10.0]))
    assert np.all(skewed.sample(bits(0, 100), 0.0)[0].weight == 1)


def test_new_items_have_the_largest_priority_so_far():
    spec = ReplaySpec(prioritised=True, priority_exponent=1.0)
    replay = filled(3, 2, spec)
    assert replay.state()["priorities"].tolist() == [1, 1]
    replay.update_priorities(np.array([0, 1]), np.array([0.25, -7.0]))
    replay.insert(numbered(2))
    np.testing.assert_array_equal(replay.state()["priorities"], [0.25 + 1e-6, 7 + 1e-6, 7 + 1e-6])
    replay.update_priorities(np.array([1, 2]), np.array([0.5, 0.5]))
    replay.insert(numbered(3))
    np.testing.assert_array_equal(replay.state()["priorities"], [7 + 1e-6, 0.5 + 1e-6, 0.5 + 1e-6])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_losses_that_are_not_finite_are_named(bad: float):
    replay = filled(3, 3, PRIORITISED)
    before = replay.state()
    with pytest.raises(ValueError, match=r"1 of 3 losses are not finite, the first -?(nan|inf) in slot 2"):
        replay.update_priorities(np.array([0, 2, 1]), np.array([1.0, bad, 2.0], np.float32))
    assert same(before, replay.state())


# --- saving and the memory bill ---------------------------------------------------------------------------------------


@given(
    st.integers(1, 9), st.integers(0, 25), st.sampled_from([UNIFORM, PRIORITISED]), st.booleans(), st.integers(0, 999)
)
def test_a_saved_memory_goes_on_as_if_nothing_had_happened(
    capacity: int, count: int, spec: ReplaySpec, masked: bool, seed: int
):
    def live(replay: NumpyReplay, first: int, steps: int) -> list[Any]:
        seen: list[Any] = []
        for k in range(first, first + steps):
            replay.insert(numbered(k, masked))
            batch, slots = replay.sample(bits(seed + k, 6), 0.4)
            if spec.prioritised:
                replay.update_priorities(slots, np.random.default_rng(k).normal(size=6))
            seen.append((batch, slots))
        return seen

    whole = NumpyReplay(capacity, numbered(0, masked), spec)
    live(whole, 0, count)
    state = whole.state()
    assert len(state["reward_t"]) == min(count, capacity)
    resumed = filled(capacity, 3, spec, masked)  # what was there before must not shine through
    resumed.load(through_a_file(state))
    assert (resumed.size, resumed.count) == (whole.size, whole.count)
    assert same(live(whole, count, 12), live(resumed, count, 12))
    assert same(whole.state(), resumed.state())
    if spec.prioritised:
        np.testing.assert_array_equal(whole._tree._sums, resumed._tree._sums)
    fresh = NumpyReplay(capacity, numbered(0, masked), spec)
    fresh.load(state)
    assert same(fresh.state(), state), "the state changed with the memory it was taken from"


def test_the_memory_of_other_settings_is_refused():
    state = filled(4, 6, PRIORITISED).state()
    for other in (filled(4, 0, UNIFORM), filled(5, 0, PRIORITISED), filled(4, 0, PRIORITISED, masked=True)):
        with pytest.raises(ValueError, match="other settings"):
            other.load(state)


@pytest.mark.parametrize("prioritised", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("capacity", [1, 100, 1000])
def test_the_memory_bill(capacity: int, masked: bool, prioritised: bool):
    example = numbered(0, masked)
    # Two observations of 2 x 4 bytes, action, reward and discount of 4 each, and 3 bytes of mask.
    ring = capacity * (2 * 8 + 3 * 4 + 3 * masked)
    # A tree for 1000 slots has 1024 leaves and as many sums, of 8 bytes.
    tree = {1: 16, 100: 2048, 1000: 16384}[capacity] * prioritised
    assert memory_estimate(capacity, example, prioritised) == ring + tree
    memory = NumpyReplay(capacity, example, ReplaySpec(prioritised=prioritised))
    assert memory._rows.nbytes + (memory._tree._sums.nbytes if prioritised else 0) == ring + tree


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (12_897_485, "12.3 MiB"),
        (1024**2 - 1, "1.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_bytes_for_people(nbytes: int, text: str):
    assert readable(nbytes) == text
