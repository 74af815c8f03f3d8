"""Dueling streams by hand, and the networks that published agents have on Atari, parameter by parameter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tremble.networks import Dueling, HiddenBranch, NoisyLinear, deepen_streams, make_head
from tremble.presets import make

FEATURES = jnp.array([0.5, -2.0, 3.0])
CONVOLUTIONS = (8 * 8 * 4 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
ACTIONS = 6


def deep(noisy: bool) -> Dueling:
    head = deepen_streams(make_head(jax.random.key(0), 3, 4, 5, True, noisy), 7, jax.random.key(1))
    assert isinstance(head, Dueling)
    return head


def test_streams_by_hand():
    head = deep(noisy=False)

    def stream(part: HiddenBranch) -> np.ndarray:
        hidden = np.maximum(np.asarray(part.hidden.weight) @ np.asarray(FEATURES) + np.asarray(part.hidden.bias), 0)
        return np.asarray(part.out.weight) @ hidden + np.asarray(part.out.bias)

    assert isinstance(head.value, HiddenBranch) and isinstance(head.advantage, HiddenBranch)
    advantage = stream(head.advantage).reshape(4, 5)
    expected = stream(head.value) + advantage - advantage.mean(0)
    np.testing.assert_allclose(head(FEATURES), expected, rtol=1e-5, atol=1e-6)


def test_every_layer_of_noisy_streams_has_noise_of_its_own():
    head = deep(noisy=True)
    layers = [layer for part in (head.value, head.advantage) for layer in (part.hidden, part.out)]
    assert all(isinstance(layer, NoisyLinear) for layer in layers)
    np.testing.assert_array_equal(head(FEATURES), head(FEATURES))
    one, other = head(FEATURES, jax.random.key(2)), head(FEATURES, jax.random.key(3))
    assert not np.allclose(one, other) and not np.allclose(one, head(FEATURES))

    heard: list[bytes] = []

    class Listening(NoisyLinear):
        def __call__(self, x: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
            assert key is not None
            heard.append(np.asarray(jax.random.key_data(key)).tobytes())
            return super().__call__(x, key=key)

    def stream(n_outputs: int) -> HiddenBranch:
        return HiddenBranch(Listening(3, 7, key=jax.random.key(0)), Listening(7, n_outputs, key=jax.random.key(0)))

    Dueling(stream(5), stream(4 * 5))(FEATURES, jax.random.key(2))
    assert len(heard) == len(set(heard)) == 4


def test_heads_without_streams_stay_as_they_are():
    plain = make_head(jax.random.key(0), 3, 4, 5, False)
    same = jax.tree.map(np.array_equal, plain, deepen_streams(plain, 7, jax.random.key(1)))
    assert jax.tree.all(same)
    with pytest.raises(ValueError, match="dueling=True"):
        make("qrdqn", "control", stream_width=8)


def n_parameters(preset: str) -> int:
    agent = make(preset, "atari")
    params = jax.eval_shape(lambda: agent.init(jax.random.key(0), (84, 84, 4), ACTIONS).params)
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("preset", "behind_the_convolutions"),
    [
        ("qrdqn", (3136 + 1) * 512 + (512 + 1) * 200 * ACTIONS),
        # The embedding of 64 cosines meets the 3,136 numbers of the convolutions; the dense layer comes behind.
        ("iqn", (64 + 1) * 3136 + (3136 + 1) * 512 + (512 + 1) * ACTIONS),
        ("pqr_iqn", (64 + 1) * 3136 + (3136 + 1) * 512 + (512 + 1) * ACTIONS),
        ("fqf", (64 + 1) * 3136 + (3136 + 1) * 512 + (512 + 1) * ACTIONS + (3136 + 1) * 32),
        # Two streams, and for each weight and bias of theirs the scale of its noise.
        ("rainbow", 2 * (2 * (3136 + 1) * 512 + (512 + 1) * 51 * (ACTIONS + 1))),
        ("pqr_rainbow", 2 * (3136 + 1) * 512 + (512 + 1) * 51 * (ACTIONS + 1)),
    ],
)
def test_published_networks_on_atari(preset: str, behind_the_convolutions: int):
    assert n_parameters(preset) == CONVOLUTIONS + behind_the_convolutions


def test_a_criterion_is_compared_beside_equal_settings():
    for with_pqr, without in (("pqr_rainbow", "rainbow"), ("pqr_c51", "c51"), ("pqr_iqn", "iqn"), ("pqr", "qrdqn")):
        a, b = make(with_pqr, "atari"), make(without, "atari")
        for name in (
            "optimiser",
            "network",
            "replay",
            "learning",
            "stream_width",
            "gamma",
        ):
            assert getattr(a, name) == getattr(b, name), (with_pqr, name)


def test_levels_of_iqn_under_each_protocol():
    chosen = {name: make("iqn", "atari", name).representation.n_choose for name in ("paper", "dqn_zoo", "dopamine")}
    assert chosen == {"paper": 32, "dqn_zoo": 64, "dopamine": 32}
