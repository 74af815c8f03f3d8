"""Fully connected torsos, by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tremble.networks import MlpSpec
from tremble.presets import make

OBS = jnp.array([0.5, -2.0, 3.0])


def by_hand(torso, obs, normalise):
    x = np.asarray(obs, np.float64)
    for layer in torso.layers:
        x = np.asarray(layer.weight, np.float64) @ x + np.asarray(layer.bias, np.float64)
        if normalise:
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        x = np.maximum(x, 0)
    return x


@pytest.mark.parametrize("normalise", [False, True])
def test_layers(normalise):
    torso, n = MlpSpec((7, 5), layer_norm=normalise).init(jax.random.key(0), (3,))
    assert n == 5
    np.testing.assert_allclose(torso(OBS), by_hand(torso, OBS, normalise), rtol=1e-5, atol=1e-6)


def test_normalised_features_do_not_grow_with_the_observation():
    torso, _ = MlpSpec((64, 64), layer_norm=True).init(jax.random.key(0), (3,))
    assert np.linalg.norm(torso(1e6 * OBS)) <= np.sqrt(64)


def test_a_preset_takes_the_switch():
    plain, normalised = (make("pqr", "control", layer_norm=on) for on in (False, True))
    count = [len(jax.tree.leaves(agent.init(jax.random.key(0), (3,), 2).params)) for agent in (plain, normalised)]
    assert count[1] == count[0] + 4, "two layers, each with a scale and a shift"
