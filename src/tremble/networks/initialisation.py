"""How the linear layers of a network start."""

from __future__ import annotations

from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

Initialisation = Literal["fan_in_uniform", "lecun_normal"]
T = TypeVar("T", bound=PyTree)


def initialise(network: T, law: Initialisation, key: PRNGKeyArray) -> T:
    """The network with its linear layers started by a law.

    ``fan_in_uniform``: weights and biases uniform in +-1/sqrt(fan-in), PyTorch's default and Equinox's, so nothing
    changes. ``lecun_normal``: weights truncated normal of variance 1/fan-in, biases zero, the default of Haiku and
    Flax: three times the variance.
    """
    if law == "fan_in_uniform":
        return network

    def is_linear(x: object) -> bool:
        return isinstance(x, eqx.nn.Linear)

    layers, structure = jax.tree.flatten(network, is_leaf=is_linear)
    keys = jax.random.split(key, len(layers))

    def restart(layer: eqx.nn.Linear, key: PRNGKeyArray) -> eqx.nn.Linear:
        stacked = tuple(range(layer.weight.ndim - 2))  # several layers in one array, such as the heads of an ensemble
        draw = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2, batch_axis=stacked)
        new = (draw(key, layer.weight.shape), jnp.zeros(layer.weight.shape[:-1]))
        return eqx.tree_at(lambda x: (x.weight, x.bias), layer, new)

    started = [restart(x, k) if is_linear(x) else x for x, k in zip(layers, keys, strict=True)]
    return jax.tree.unflatten(structure, started)
