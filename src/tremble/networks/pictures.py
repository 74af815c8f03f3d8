"""A torso that goes by what it sees: convolutions for pictures, fully connected layers for everything else."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from tremble.networks.conv import MINATAR, NATURE, ConvSpec, ConvTorso, Layers
from tremble.networks.own import NetworkSpec
from tremble.networks.torsos import Mlp, MlpSpec

LARGE = 36
"""Pixels of the shorter side from which on a picture has room for Nature's convolutions."""
MIDDLE: Layers = ((32, 4, 2), (64, 3, 2))
"""From 12 pixels on: shorter steps, because Nature's first one would leave almost nothing."""


class Picture(NamedTuple):
    """How the three axes of an observation are read."""

    height: int
    width: int
    channels: int
    channels_first: bool

    @property
    def layers(self) -> Layers:
        """The convolutions for its size; they always fit."""
        side = min(self.height, self.width)
        return NATURE if side >= LARGE else MIDDLE if side >= 12 else MINATAR


def as_picture(shape: tuple[int, ...]) -> Picture | None:
    """What an observation of this shape shows; None unless it has three axes and at least 3 x 3 pixels.

    Channels are last, unless that cannot be meant: the other two axes have `LARGE` pixels or more and the first has
    not, or they are equal and the first is smaller than both and at most 4 (grey, colours, four stacked pictures).
    """
    if len(shape) != 3 or 0 in shape:
        return None
    first, *others = shape
    large = first < LARGE <= min(others)
    square = first <= 4 and first < others[0] == others[1]
    height, width, channels = (*others, first) if large or square else shape
    return Picture(height, width, channels, large or square) if min(height, width) >= 3 else None


class PictureTorso(eqx.Module):
    """Convolutions, then fully connected layers."""

    pixels: ConvTorso
    dense: Mlp
    channels_first: bool = eqx.field(static=True)

    def __call__(self, obs: Shaped[Array, "*picture"]) -> Float[Array, "features"]:
        """Features of one picture."""
        return self.dense(self.pixels(jnp.moveaxis(obs, 0, -1) if self.channels_first else obs))


class AutoSpec(MlpSpec):
    """Fully connected layers, and for pictures convolutions in front of them; all static.

    Which ones is a function of the observation's shape alone (`as_picture`), so a saved run has its network again.
    Bytes are scaled to [0, 1], other numbers are not (`as_numbers`).
    """

    pictures: Literal["convolve", "flatten"] = eqx.field(static=True, default="convolve")
    """What is done with observations of three axes; ``flatten`` is the network ``mlp``."""

    def init(self, key: PRNGKeyArray, obs_shape: tuple[int, ...]) -> tuple[Any, int]:
        """Torso for observations of this shape, and how many features it gives."""
        picture = self._picture(obs_shape)
        if picture is None:
            return super().init(key, obs_shape)
        conv_key, dense_key = jax.random.split(key)
        seen = (picture.height, picture.width, picture.channels)
        pixels, n_flat = ConvSpec(picture.layers, widths=(), scale=None).init(conv_key, seen)
        dense, n_features = super().init(dense_key, (n_flat,))
        return PictureTorso(pixels, dense, picture.channels_first), n_features

    def _picture(self, obs_shape: tuple[int, ...]) -> Picture | None:
        return as_picture(obs_shape) if self.pictures == "convolve" else None


def choice_in_words(spec: NetworkSpec, obs_shape: tuple[int, ...]) -> str | None:
    """What an `AutoSpec` does with pictures of this shape; None where there is nothing to say."""
    picture = as_picture(obs_shape)
    if not isinstance(spec, AutoSpec) or spec.pictures == "flatten" or picture is None:
        return None
    layers = ", ".join(f"{filters} of {size}x{size} every {stride}" for filters, size, stride in picture.layers)
    return (
        f"network: pictures of {picture.height}x{picture.width} with {picture.channels} channels "
        f"({'first' if picture.channels_first else 'last'} axis) go through convolutions ({layers}); network=mlp is "
        "without them"
    )
