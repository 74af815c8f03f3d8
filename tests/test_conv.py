"""Convolutions against a plain loop, and agents on pictures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tremble.networks import MINATAR, ConvSpec
from tremble.networks.conv import filtered_by_products
from tremble.settings import describe, override


def loop(picture: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    size = weight.shape[0]
    rows, columns = ((n - size) // stride + 1 for n in picture.shape[:2])
    out = np.zeros((rows, columns, weight.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            window = picture[i * stride : i * stride + size, j * stride : j * stride + size]
            out[i, j] = np.tensordot(window, weight, 3) + bias
    return out


@pytest.mark.parametrize("spec", [ConvSpec(((3, 4, 2), (2, 2, 1)), (5,)), ConvSpec(MINATAR, (7,), scale=1.0)])
def test_torso_is_the_written_out_sum(spec: ConvSpec) -> None:
    torso, n_features = spec.init(jax.random.key(0), (10, 10, 4))
    picture = np.random.default_rng(0).integers(0, 255, (10, 10, 4)).astype(np.uint8)
    x = picture * spec.scale
    for convolution in torso.convolutions:
        weight, bias = (np.asarray(p, np.float64) for p in (convolution.weight, convolution.bias))
        x = np.maximum(loop(x, weight, bias, convolution.stride), 0)
    x = x.ravel()
    for layer in torso.dense.layers:
        x = np.maximum(np.asarray(layer.weight, np.float64) @ x + np.asarray(layer.bias), 0)
    ours = torso(jnp.asarray(picture))
    assert ours.shape == (n_features,)
    np.testing.assert_allclose(ours, x, rtol=2e-4, atol=1e-5)


def test_nature_network_has_the_published_sizes() -> None:
    shapes = {pad: ConvSpec(padding=pad).init(jax.random.key(0), (84, 84, 4))[0] for pad in ("valid", "same")}
    assert shapes["valid"].dense.layers[0].weight.shape == (512, 3136)  # 7 x 7 x 64
    assert shapes["same"].dense.layers[0].weight.shape == (512, 7744)  # 11 x 11 x 64


@pytest.mark.parametrize("shape", [(84, 84), (5, 5, 1)])
def test_unfit_observations_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \("):
        ConvSpec().init(jax.random.key(0), shape)


def test_layers_are_settings() -> None:
    spec = override(ConvSpec(), {"layers": [[8, 3, 2]], "widths": 32})
    assert spec.layers == ((8, 3, 2),) and spec.widths == (32,)
    assert override(ConvSpec(), describe(spec)) == spec


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("size", [2, 3])
def test_small_pictures_are_filtered_by_products(size: int, padding: str) -> None:
    """The same values and gradients as XLA's convolution."""
    keys = jax.random.split(jax.random.key(size), 3)
    weight = jax.random.normal(keys[0], (size, size, 4, 5))
    picture = jax.random.normal(keys[1], (7, 6, 4))

    def plain(picture: jax.Array, weight: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(picture[None], weight, (1, 1), padding.upper(), dimension_numbers=numbers)[
            0
        ]

    out, back = jax.vjp(plain, picture, weight)
    ours, our_back = jax.vjp(lambda p, w: filtered_by_products(p, w, padding), picture, weight)
    np.testing.assert_allclose(ours, out, rtol=1e-5, atol=1e-5)
    direction = jax.random.normal(keys[2], out.shape)
    for mine, theirs in zip(our_back(direction), back(direction), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
