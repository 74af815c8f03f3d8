"""Outputs of the taken action by groups: against the plain product, for every way actions can fall."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tremble.core import Clock, Transition
from tremble.learn import learn
from tremble.networks import taken
from tremble.networks.taken import group_sizes, outputs_taken, worth_grouping
from tremble.presets import make

N, FEATURES = 3, 5


def plain(weight, bias, features, action):
    return jnp.einsum("bnf,bf->bn", weight[action], features) + bias[action]


@partial(jax.jit, static_argnums=0)
def both(function, arrays, action, cotangent):
    value, back = jax.vjp(lambda *x: function(*x, action), *arrays)
    return value, *back(cotangent)


@pytest.mark.parametrize("n_samples, n_actions", [(9, 4), (3, 5), (8, 1)])
@given(data=st.data())
def test_outputs_and_gradients_are_those_of_the_plain_product(n_samples, n_actions, data):
    actions = data.draw(st.lists(st.integers(0, n_actions - 1), min_size=n_samples, max_size=n_samples))
    r = np.random.default_rng(data.draw(st.integers(0, 1000)))
    shapes = (n_actions, N, FEATURES), (n_actions, N), (n_samples, FEATURES), (n_samples, N)
    *arrays, cotangent = (jnp.asarray(r.normal(size=shape), jnp.float32) for shape in shapes)
    action = jnp.asarray(actions, jnp.int32)
    mine, theirs = (both(function, tuple(arrays), action, cotangent) for function in (outputs_taken, plain))
    for got, wanted in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_every_group_fits_its_place(actions):
    counts = np.sort(np.bincount(actions, minlength=6))[::-1]
    sizes = group_sizes(len(actions), 6)
    assert all(count <= size for count, size in zip(counts, sizes, strict=False)) and not counts[len(sizes) :].any()


def test_small_heads_are_left_alone():
    assert worth_grouping(128, 4, 170, 256), "LunarLander with the paper's column"
    assert worth_grouping(32, 6, 200, 512), "Pong with the paper's column"
    assert not worth_grouping(64, 2, 32, 64), "CartPole"
    assert not worth_grouping(10_000, 1, 200, 512), "a single action has nothing to save"


@pytest.mark.parametrize(
    "name, changes",
    [
        ("qrdqn", {"n_quantiles": 20}),
        ("pqr", {"n_quantiles": 20, "monotone": True, "delta_0": 10.0}),
        ("c51", {}),
        ("mmd", {"n_particles": 20}),
    ],
)
def test_the_update_is_the_same_with_groups_and_without(name, changes, monkeypatch):
    agent = make(name, "lunarlander", widths=(16,), batch_size=24, **changes)
    r = np.random.default_rng(0)
    obs, later = (jnp.asarray(r.normal(size=(24, 8)), jnp.float32) for _ in range(2))
    action = jnp.asarray(r.choice(4, 24, p=[0.7, 0.0, 0.2, 0.1]), jnp.int32)
    batch = Transition(obs, action, jnp.ones(24), jnp.full(24, 0.9), later, weight=jnp.ones(24))
    clock = Clock(*(jnp.asarray(1000) for _ in range(4)), 0)
    state, noise = agent.init(jax.random.key(0), (8,), 4), agent.draw_learn(jax.random.key(1))
    found = []
    for worth in (0.0, np.inf):
        monkeypatch.setattr(taken, "WORTH", worth)
        lowered = jax.jit(lambda state: learn(agent, state, batch, noise, clock)).lower(state)
        assert ("dynamic_update_slice" in lowered.as_text()) == (worth == 0.0), "groups are put together piece by piece"
        after, info = lowered.compile()(state)
        found.append([*jax.tree.leaves(after.opt_state), info.losses, info.gradient_norm])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-6)
