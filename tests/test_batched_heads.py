"""Heads that compute a batch in flat products, against one sample and one level at a time, in float64."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import auxiliary_losses, flat_agent
from hypothesis import given
from hypothesis import strategies as st

from tremble.core import Transition
from tremble.criteria import Mean
from tremble.networks import MlpSpec
from tremble.networks.implicit import cos_pi
from tremble.representations import FullyParameterised, Implicit, NonDecreasing
from tremble.representations.non_decreasing import grid, ramps

BATCH, FEATURES, ACTIONS, LEVELS = 3, 6, 3, 4


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def as_float64(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), tree)


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def embedded(embedding, features, level):
    """features * relu(embedding(cos(pi i tau))), for one sample and one level."""
    cosines = jnp.cos(jnp.pi * jnp.arange(1, embedding.weight.shape[1] + 1) * level)
    return features * jax.nn.relu(embedding.weight @ cosines + embedding.bias)


def implicit(head, features, levels, key=None):
    """``[actions, n]`` of one sample."""
    hidden_key, out_key = (None, None) if key is None else jax.random.split(key)

    def quantile(level):
        hidden = jax.nn.relu(head.hidden(embedded(head.embedding, features, level), key=hidden_key))
        return head.out(hidden, out_key)[:, 0]

    return jnp.stack([quantile(level) for level in levels], 1)


def monotone(head, features, levels, key=None):
    """``[actions, n]`` of one sample."""
    hidden_key, out_key, baseline_key = (None,) * 3 if key is None else jax.random.split(key, 3)
    points, n = grid(head.n_intervals).astype(float), head.n_intervals
    mixed = [embedded(head.embedding, features, p) for p in points]
    increments = []
    for low, high in itertools.pairwise(mixed):
        hidden = jax.nn.relu(head.hidden(jnp.concatenate([low, high]), key=hidden_key))
        increments.append(jax.nn.softplus(head.out(hidden, out_key)[:, 0] - np.log(n)))
    return head.baseline(features, baseline_key) + jnp.stack(increments, 1) @ ramps(levels, n)


def gradients_agree(flat, one_by_one, head, features, levels):
    """Values, and gradients in head and features, of a random linear function of the outputs."""
    weight = normal(3, BATCH, ACTIONS, levels.shape[1])

    def of(function):
        def objective(head, features):
            out = function(head, features)
            return (weight * out).sum(), out

        return jax.jit(jax.grad(objective, (0, 1), has_aux=True))(head, features)

    expected, outputs = of(lambda h, x: jnp.stack([one_by_one(h, x[b], levels[b]) for b in range(BATCH)]))
    got, same = of(lambda h, x: flat(h, x, levels))
    np.testing.assert_allclose(same, outputs, rtol=1e-10)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dueling, noisy", [(False, False), (True, True)])
def test_implicit_quantiles_one_by_one(dueling, noisy):
    head = as_float64(Implicit(n_cosines=8, n_hidden=9).init_head(jax.random.key(0), FEATURES, ACTIONS, dueling, noisy))
    levels = jnp.asarray(np.random.default_rng(1).random((BATCH, LEVELS)))
    key = jax.random.key(5) if noisy else None
    gradients_agree(
        lambda h, x, tau: h(x, tau, key),
        lambda h, x, tau: implicit(h, x, tau, key),
        head,
        normal(2, BATCH, FEATURES),
        levels,
    )


@pytest.mark.parametrize("dueling, noisy", [(False, False), (True, True)])
def test_monotone_quantiles_one_by_one(dueling, noisy):
    made = NonDecreasing(n_intervals=4, n_cosines=8, n_hidden=9, bonus="none")
    head = as_float64(made.init_head(jax.random.key(0), FEATURES, ACTIONS, dueling, noisy).quantiles)
    levels = jnp.asarray(np.random.default_rng(1).random((BATCH, LEVELS)))
    key = jax.random.key(5) if noisy else None
    gradients_agree(
        lambda h, x, tau: h(x, tau, key),
        lambda h, x, tau: monotone(h, x, tau, key),
        head,
        normal(2, BATCH, FEATURES),
        levels,
    )


def agent_and_batch(representation):
    agent = flat_agent(representation=representation, criterion=Mean(), network=MlpSpec((FEATURES,)), batch_size=BATCH)
    agent = as_float64(agent)
    params = as_float64(agent.init(jax.random.key(0), (4,), ACTIONS).params)
    params = jax.tree.map(lambda x: x + 0.3 * normal(x.size, *x.shape), params)  # away from nearly equal fractions
    obs = normal(7, BATCH, 4)
    action = jnp.asarray(np.random.default_rng(8).integers(0, ACTIONS, BATCH))
    return agent, params, Transition(obs, action, normal(9, BATCH), jnp.ones(BATCH), obs, jnp.ones(BATCH))


def auxiliary_gradients_agree(agent, params, batch, one_by_one):
    ours = jax.jit(jax.grad(lambda p: auxiliary_losses(agent, p, p, batch).sum()))(params)
    theirs = jax.grad(lambda p: sum(one_by_one(p, batch.obs_tm1[b], batch.action_tm1[b]) for b in range(BATCH)))(params)
    sizes = []
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        sizes.append(float(jnp.abs(b).max()))
    assert max(sizes) > 1e-3, "a gradient to compare"


def test_fractions_one_by_one():
    agent, params, batch = agent_and_batch(FullyParameterised(6, n_cosines=8))

    def edges(head, features):
        layer = head.fractions
        steps = jax.nn.softmax(layer.weight @ jax.lax.stop_gradient(features) + layer.bias)
        return jnp.concatenate([jnp.zeros(1), jnp.cumsum(steps)[:-1], jnp.ones(1)])

    def one_by_one(params, obs, action):
        features = params.torso(obs)
        proposed = edges(params.head, features)
        fixed = jax.lax.stop_gradient(proposed)
        at_edges = implicit(params.head.quantiles, features, fixed[1:-1])[action]
        at_middle = implicit(params.head.quantiles, features, (fixed[1:] + fixed[:-1]) / 2)[action]
        slope = jax.lax.stop_gradient(2 * at_edges - at_middle[1:] - at_middle[:-1])
        return (slope * proposed[1:-1]).sum()

    auxiliary_gradients_agree(agent, params, batch, one_by_one)
    dist = jax.jit(lambda p: agent.predict(p, batch.obs_tm1))(params)
    for b in range(BATCH):
        features = params.torso(batch.obs_tm1[b])
        found = edges(params.head, features)
        atoms = implicit(params.head.quantiles, features, (found[1:] + found[:-1]) / 2)
        np.testing.assert_allclose(dist.atoms[b], atoms, rtol=1e-10)
        np.testing.assert_allclose(dist.weights[b], np.tile(np.diff(found), (ACTIONS, 1)), rtol=1e-10)


def test_the_imitator_one_by_one():
    agent, params, batch = agent_and_batch(NonDecreasing(n_intervals=4, n_cosines=8))
    levels = (jnp.arange(4) + 0.5) / 4

    def one_by_one(params, obs, action):
        _, seen, frozen = jnp.split(params.torso(obs), 3)
        imitated = jax.lax.stop_gradient(monotone(params.head.frozen, frozen, levels))
        return ((monotone(params.head.imitator, seen, levels) - imitated)[action] ** 2).mean()

    auxiliary_gradients_agree(agent, params, batch, one_by_one)


@given(st.floats(-100, 100))
def test_cosines(x):
    assert float(cos_pi(jnp.asarray(x, jnp.float64))) == pytest.approx(np.cos(np.pi * x), abs=1e-12)
    single = np.float32(x)
    exact = np.cos(np.pi * (float(single) - 2 * np.round(float(single) / 2)))
    assert float(cos_pi(jnp.asarray(single, jnp.float32))) == pytest.approx(exact, abs=5e-7)


def test_levels_of_a_batch_are_independent():
    draw = eqx.filter_jit(partial(Implicit(n_online=50).levels, "online", batch=400))
    levels = np.asarray(draw(jax.random.key(0)))
    assert levels.shape == (400, 50) and np.unique(levels).size > 19_000
    assert abs(np.corrcoef(levels[:-1].ravel(), levels[1:].ravel())[0, 1]) < 0.03
