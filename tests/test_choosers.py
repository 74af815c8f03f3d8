from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tremble.choosers import ChoiceNoise, Chooser, draw_choice, greedy, uniform
from tremble.core import Clock

DRAWS = 20_000
LEVEL = 1e-5
"""A correct chooser fails a test of frequencies once in so many seeds."""


def clock(transitions: int = 1000, start: int = 0) -> Clock:
    return Clock(transitions, 0, 0, 0, start_transitions=start)


@functools.cache
def many_draws() -> ChoiceNoise:
    return jax.jit(jax.vmap(lambda k: draw_choice(k, 4)))(jax.random.split(jax.random.key(0), DRAWS))


@functools.partial(jax.jit, static_argnums=0)
def _take(choose: Callable[..., jax.Array], noise: ChoiceNoise, arguments: Any) -> jax.Array:
    return jax.vmap(lambda n: choose(*arguments, n))(noise)


def counts(choose: Callable[..., jax.Array], *arguments: Any) -> np.ndarray:
    """How often each action is taken over many independent draws."""
    return np.bincount(_take(choose, many_draws(), arguments), minlength=4)


def act(chooser: Chooser, scores: Any, mask: Any, now: Clock, noise: ChoiceNoise) -> jax.Array:
    return chooser.choose(scores, mask, noise, now)


def uniform_of_four(mask: Any, noise: ChoiceNoise) -> jax.Array:
    return uniform(4, mask, noise)


def assert_uniform_over(taken: np.ndarray, actions: list[int]):
    assert taken[actions].sum() == DRAWS
    assert scipy.stats.chisquare(taken[actions]).pvalue > LEVEL


def test_ties_are_broken_uniformly():
    assert_uniform_over(counts(greedy, jnp.array([2.0, 1.0, 2.0, 2.0]), None), [0, 2, 3])
    assert_uniform_over(counts(greedy, jnp.zeros(4), None), [0, 1, 2, 3])


def test_ties_among_the_permitted_only():
    mask = jnp.array([True, True, False, True])
    assert_uniform_over(counts(greedy, jnp.array([2.0, 1.0, 2.0, 2.0]), mask), [0, 3])


def test_the_best_is_taken_without_a_tie():
    assert counts(greedy, jnp.array([0.0, 3.0, 2.999999, -1.0]), None)[1] == DRAWS


def test_uniform_choice():
    assert_uniform_over(counts(uniform_of_four, None), [0, 1, 2, 3])
    mask = jnp.array([False, True, False, True])
    assert_uniform_over(counts(uniform_of_four, mask), [1, 3])


@pytest.mark.parametrize("masked", [False, True])
def test_epsilon_is_the_share_of_random_actions(masked: bool):
    epsilon = 0.3
    chooser = Chooser(epsilon, epsilon)
    mask = jnp.array([True, False, True, True]) if masked else None
    taken = counts(act, chooser, jnp.array([0.0, 9.0, 5.0, 1.0]), mask, clock())
    actions = [0, 2, 3] if masked else [0, 1, 2, 3]
    best = 2 if masked else 1
    expected = np.array([epsilon / len(actions) + (1 - epsilon) * (a == best) for a in actions]) * DRAWS
    assert taken[actions].sum() == DRAWS
    assert scipy.stats.chisquare(taken[actions], expected).pvalue > LEVEL


def test_epsilon_falls_in_a_straight_line():
    chooser = Chooser(1.0, 0.1, 10.0)
    values = [float(chooser.epsilon(clock(k))) for k in (0, 1, 5, 10, 11, 1000)]
    np.testing.assert_allclose(values, [1.0, 0.91, 0.55, 0.1, 0.1, 0.1], rtol=1e-6)


def test_zero_and_one_are_never_and_always():
    scores = jnp.array([0.0, 1.0, 0.0, 0.0])
    assert counts(act, Chooser(), scores, None, clock())[1] == DRAWS
    assert_uniform_over(counts(act, Chooser(1.0, 1.0), scores, None, clock()), [0, 1, 2, 3])


def test_the_start_is_random_until_learning_starts():
    scores = jnp.array([0.0, 1.0, 0.0, 0.0])
    mask = jnp.array([True, True, False, True])
    last_random, first_greedy = clock(499, start=500), clock(500, start=500)
    chooser = Chooser()
    assert_uniform_over(counts(act, chooser, scores, None, last_random), [0, 1, 2, 3])
    assert_uniform_over(counts(act, chooser, scores, mask, last_random), [0, 1, 3])
    assert counts(act, chooser, scores, None, first_greedy)[1] == DRAWS
    assert counts(act, Chooser(random_start=False), scores, None, last_random)[1] == DRAWS


choose_now = jax.jit(lambda chooser, scores, mask, noise: chooser.choose(scores, mask, noise, clock()))


@given(
    scores=st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, np.inf, np.nan]), min_size=4, max_size=4),
    mask=st.lists(st.booleans(), min_size=4, max_size=4).filter(any),
    priority=st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4),
    explore=st.floats(0, 1, exclude_max=True, width=32),
    epsilon=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_a_forbidden_action_is_never_taken(scores, mask, priority, explore, epsilon):
    # Whatever the scores: also when the permitted ones are -inf or NaN.
    noise = ChoiceNoise(jnp.float32(explore), jnp.array(priority, jnp.float32))
    chooser = Chooser(jnp.float32(epsilon), jnp.float32(epsilon))
    action = int(choose_now(chooser, jnp.array(scores, jnp.float32), jnp.array(mask), noise))
    assert mask[action]
    permitted = [s for s, m in zip(scores, mask, strict=True) if m]
    if epsilon == 0 and not np.isnan(permitted).any():
        assert scores[action] == max(permitted)
