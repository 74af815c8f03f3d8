"""From an observation to a vector of features."""

from __future__ import annotations

import math
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from tremble.core import Settings
from tremble.networks.initialisation import Initialisation
from tremble.networks.layers import affine
from tremble.settings import SIZE


def as_numbers(obs: Shaped[Array, "*obs"]) -> Float[Array, "*obs"]:
    """An observation in floating point. Bytes of a picture, which has several axes, are scaled to [0, 1].

    Bytes of a vector stay as they are: they may be codes. So do other numbers, whose range the type does not say.
    """
    numbers = obs.astype(jnp.float32)
    return numbers * (1 / 255) if obs.dtype == jnp.uint8 and obs.ndim > 1 else numbers


class Mlp(eqx.Module):
    """Fully connected layers with ReLU after each, and layer normalisation before it where asked for."""

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    """One for every layer, or none."""

    def __init__(self, key: PRNGKeyArray, n_inputs: int, widths: tuple[int, ...], layer_norm: bool = False):
        """Layers of the given widths."""
        sizes = (n_inputs, *widths)
        keys = jax.random.split(key, max(len(widths), 1))
        self.layers = tuple(eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False))
        self.norms = tuple(eqx.nn.LayerNorm(width) for width in widths) if layer_norm else ()

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, "features"]:
        """Features of one observation, flattened first."""
        x = as_numbers(obs).reshape(-1)
        for i, layer in enumerate(self.layers):
            x = affine(layer, x)
            x = jax.nn.relu(self.norms[i](x) if self.norms else x)
        return x


class MlpSpec(Settings):
    """The torso an agent asks for, and how torso and head start; all static."""

    widths: Annotated[tuple[int, ...], SIZE] = eqx.field(static=True, default=(64, 64))
    """Hidden widths."""
    initialisation: Initialisation = eqx.field(static=True, default="fan_in_uniform")
    """PyTorch's default, because the code bases the paper's settings come from use it."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Normalise what enters each ReLU to mean 0 and variance 1, then scale and shift it by learned numbers: bounded
    features cannot let values run away, so larger steps are safe."""

    def init(self, key: PRNGKeyArray, obs_shape: tuple[int, ...]) -> tuple[Any, int]:
        """Torso for observations of this shape, and how many features it gives."""
        n_inputs = math.prod(obs_shape)
        return Mlp(key, n_inputs, self.widths, self.layer_norm), (self.widths[-1] if self.widths else n_inputs)
