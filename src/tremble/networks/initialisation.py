"""How the layers of a network start."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

Initialisation = Literal["fan_in_uniform", "lecun_normal", "he_convolutions", "variance_scaling", "xavier_uniform"]
T = TypeVar("T", bound=PyTree)


def initialise(network: T, law: Initialisation, key: PRNGKeyArray) -> T:
    """The network with its linear layers and convolutions started by a law.

    ``fan_in_uniform``: weights and biases uniform in +-1/sqrt(fan-in), PyTorch's default and Equinox's, so nothing
    changes. The others have no biases at first. ``lecun_normal``: weights truncated normal of variance 1/fan-in, the
    default of Haiku and Flax: three times the variance. ``he_convolutions``: weights of convolutions uniform in
    +-sqrt(6/fan-in), all other layers as they are. ``variance_scaling``: uniform in +-sqrt(sqrt(3)/fan-in), Dopamine's
    for distributional agents. ``xavier_uniform``: uniform in +-sqrt(6/(fan-in + fan-out)), Dopamine's for DQN.
    """
    if law == "fan_in_uniform":
        return network

    def is_layer(x: object) -> bool:
        return isinstance(x, eqx.nn.Linear) or is_convolution(x)

    layers, structure = jax.tree.flatten(network, is_leaf=is_layer)
    keys = jax.random.split(key, len(layers))

    def restart(layer: Any, key: PRNGKeyArray) -> Any:
        if not is_layer(layer) or (law == "he_convolutions" and not is_convolution(layer)):
            return layer
        new = (_draw(key, law, layer.weight, is_convolution(layer)), jnp.zeros_like(layer.bias))
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, new)

    return jax.tree.unflatten(structure, [restart(x, k) for x, k in zip(layers, keys, strict=True)])


def is_convolution(layer: object) -> bool:
    """Whether a layer's weights are ``[height, width, inputs, filters]``."""
    return isinstance(layer, eqx.Module) and getattr(getattr(layer, "weight", None), "ndim", 0) == 4


def _draw(key: PRNGKeyArray, law: Initialisation, old: Float[Array, "..."], convolution: bool) -> Float[Array, "..."]:
    """Weights of the shape of the old ones: ``[out, in]``, or those of a convolution."""
    inputs, outputs = (-2, -1) if convolution else (-1, -2)
    if law == "lecun_normal":
        return jax.nn.initializers.lecun_normal(in_axis=inputs, out_axis=outputs)(key, old.shape)
    area = math.prod(old.shape[:2]) if convolution else 1
    fan_in, fan_out = area * old.shape[inputs], area * old.shape[outputs]
    limit = {
        "he_convolutions": math.sqrt(6 / fan_in),
        "variance_scaling": math.sqrt(math.sqrt(3) / fan_in),
        "xavier_uniform": math.sqrt(6 / (fan_in + fan_out)),
    }[law]
    return jax.random.uniform(key, old.shape, minval=-limit, maxval=limit)
