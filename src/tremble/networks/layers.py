"""Linear layers: plain, and with learned, random weights for exploration by the parameters."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class NoisyLinear(eqx.Module):
    """y = (W + S * (e_out e_in^T)) x + b + s * e_out, with factorised noise e = sign(g) sqrt(|g|), g ~ N(0, 1).

    W, b, S, s are learned. Without a key the noise is zero: the layer as it acts on average.
    """

    weight: Float[Array, "out in"]
    bias: Float[Array, "out"]
    weight_scale: Float[Array, "out in"]
    bias_scale: Float[Array, "out"]

    def __init__(self, n_inputs: int, n_outputs: int, *, key: PRNGKeyArray, scale: float = 0.1):
        """W, b uniform in +-1/sqrt(inputs); S, s constant ``scale / sqrt(inputs)``.

        The paper of noisy networks has scale 0.5; DQN Zoo and Dopamine have 0.1.
        """
        bound = 1.0 / math.sqrt(n_inputs)
        weight_key, bias_key = jax.random.split(key)
        self.weight = jax.random.uniform(weight_key, (n_outputs, n_inputs), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (n_outputs,), minval=-bound, maxval=bound)
        self.weight_scale = jnp.full((n_outputs, n_inputs), scale * bound)
        self.bias_scale = jnp.full((n_outputs,), scale * bound)

    def __call__(self, x: Float[Array, "in"], *, key: PRNGKeyArray | None = None) -> Float[Array, "out"]:
        """Apply the layer; the same key gives the same weights."""
        mean = self.weight @ x + self.bias
        if key is None:
            return mean
        in_key, out_key = jax.random.split(key)
        e_in, e_out = _factor(in_key, x.shape[0]), _factor(out_key, mean.shape[0])
        # (S * e_out e_in^T) x without making the matrix of noise.
        return mean + e_out * (self.weight_scale @ (e_in * x) + self.bias_scale)


def _factor(key: PRNGKeyArray, n: int) -> Float[Array, "n"]:
    g = jax.random.normal(key, (n,))
    return jnp.sign(g) * jnp.sqrt(jnp.abs(g))


def linear(key: PRNGKeyArray, n_inputs: int, n_outputs: int, noisy: bool) -> eqx.nn.Linear | NoisyLinear:
    """A layer of either kind; both are called as ``layer(x, key=key)``."""
    if noisy:
        return NoisyLinear(n_inputs, n_outputs, key=key)
    return eqx.nn.Linear(n_inputs, n_outputs, key=key)


def affine(layer: eqx.nn.Linear, x: Float[Array, "in"]) -> Float[Array, "out"]:
    """W x + b.

    Under `jax.vmap` the product is W X^T, from which XLA makes X W^T to save the transposition of its result. On a CPU
    it then turns W around instead, at every call, which for a few dozen samples takes nearly as long as the product.
    The barrier keeps W where it is. It saves the less the more samples there are: with the weights of Atari's network a
    fifth of the layers' update at 32 and a twentieth at 128, so layers that see every level apart do without.
    """
    product = jax.lax.optimization_barrier(layer.weight @ x)
    return product if layer.bias is None else product + layer.bias


def batch_linear(
    layer: eqx.nn.Linear | NoisyLinear, rows: Float[Array, "rows in"], key: PRNGKeyArray | None = None
) -> Float[Array, "rows out"]:
    """The layer of many rows in one product; a noisy layer has the same noise for all of them."""
    return jax.vmap(lambda x: layer(x, key=key))(rows)
