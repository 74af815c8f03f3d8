"""From pictures to a vector of features."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from tremble.core import Settings
from tremble.networks.initialisation import Initialisation
from tremble.networks.torsos import Mlp, as_numbers
from tremble.settings import POSITIVE, SIZE, SettingsError

Layers = tuple[tuple[int, int, int], ...]
"""(filters, size, stride) of each convolution."""
NATURE: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""The convolutions of the DQN of 2015, which all agents on Atari share."""
SMALL = 10_000
"""Up to so many numbers, a picture's neighbourhoods are written out: XLA's convolutions are slow on small pictures."""
MINATAR: Layers = ((16, 3, 1),)
"""The convolution of the MinAtar paper; a dense layer of 128 follows."""


class Conv(eqx.Module):
    """One convolution, channels last: the layout in which XLA is fastest on a CPU."""

    weight: Float[Array, "height width inputs filters"]
    bias: Float[Array, "filters"]
    stride: int = eqx.field(static=True)
    padding: Literal["valid", "same"] = eqx.field(static=True)

    def __init__(
        self, key: PRNGKeyArray, n_inputs: int, layer: tuple[int, int, int], padding: Literal["valid", "same"]
    ):
        """Weights and biases uniform in +-1/sqrt(fan-in), as those of the dense layers."""
        filters, size, self.stride = layer
        self.padding = padding
        limit = 1.0 / math.sqrt(size * size * n_inputs)
        weight_key, bias_key = jax.random.split(key)
        self.weight = jax.random.uniform(weight_key, (size, size, n_inputs, filters), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (filters,), minval=-limit, maxval=limit)

    def __call__(self, picture: Float[Array, "height width inputs"]) -> Float[Array, "rows columns filters"]:
        """The filtered picture."""
        if self.stride == 1 and picture.size * self.weight.shape[0] ** 2 <= SMALL:
            return filtered_by_products(picture, self.weight, self.padding) + self.bias
        out = jax.lax.conv_general_dilated(
            picture[None],
            self.weight,
            (self.stride, self.stride),
            self.padding.upper(),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return out[0] + self.bias


def filtered_by_products(
    picture: Float[Array, "height width inputs"],
    weight: Float[Array, "size size inputs filters"],
    padding: Literal["valid", "same"],
) -> Float[Array, "rows columns filters"]:
    """A convolution of stride 1 as one product: every output cell's neighbourhood in a row, times the filters."""
    size = weight.shape[0]
    if padding == "same":
        before = (size - 1) // 2
        picture = jnp.pad(picture, ((before, size - 1 - before), (before, size - 1 - before), (0, 0)))
    rows, columns = picture.shape[0] - size + 1, picture.shape[1] - size + 1
    shifted = [picture[i : i + rows, j : j + columns] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifted, -1) @ weight.reshape(-1, weight.shape[-1])


class ConvTorso(eqx.Module):
    """Convolutions with ReLU after each, then fully connected layers."""

    convolutions: tuple[Conv, ...]
    dense: Mlp
    scale: Annotated[float, POSITIVE] | None = eqx.field(static=True)

    def __call__(self, obs: Shaped[Array, "height width channels"]) -> Float[Array, "features"]:
        """Features of one picture."""
        x = as_numbers(obs) if self.scale is None else obs.astype(jnp.float32) * self.scale
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        return self.dense(x)


class ConvSpec(Settings):
    """Convolutions for pictures ``[height, width, channels]``, and the dense layers behind them; all static."""

    layers: Annotated[Layers, SIZE] = eqx.field(static=True, default=NATURE)
    widths: Annotated[tuple[int, ...], SIZE] = eqx.field(static=True, default=(512,))
    """The dense layers."""
    padding: Literal["valid", "same"] = eqx.field(static=True, default="valid")
    scale: Annotated[float, POSITIVE] | None = eqx.field(static=True, default=1 / 255)
    """What pixels are multiplied by: 1/255 for bytes, 1 for zeros and ones; None goes by their type (`as_numbers`)."""
    initialisation: Initialisation = eqx.field(static=True, default="fan_in_uniform")

    def init(self, key: PRNGKeyArray, obs_shape: tuple[int, ...]) -> tuple[ConvTorso, int]:
        """Torso for pictures of this shape, and how many features it gives."""
        if len(obs_shape) != 3:
            raise SettingsError(f"convolutions want observations [height, width, channels], got the shape {obs_shape}")
        conv_key, dense_key = jax.random.split(key)
        inputs = (obs_shape[-1], *(filters for filters, _, _ in self.layers))
        keys = jax.random.split(conv_key, len(self.layers))
        made = tuple(
            Conv(k, n, layer, self.padding) for k, n, layer in zip(keys, inputs[:-1], self.layers, strict=True)
        )

        def filtered(x: Any) -> Any:
            for convolution in made:
                x = convolution(x)
            return x

        try:
            shape = jax.eval_shape(filtered, jax.ShapeDtypeStruct(obs_shape, jnp.float32)).shape
        except (TypeError, ValueError) as error:
            raise SettingsError(f"pictures of the shape {obs_shape} are too small for these convolutions") from error
        n_flat = math.prod(shape)
        if n_flat == 0:
            raise SettingsError(f"pictures of the shape {obs_shape} are too small for the convolutions {self.layers}")
        return ConvTorso(made, Mlp(dense_key, n_flat, self.widths), self.scale), (
            self.widths[-1] if self.widths else n_flat
        )
