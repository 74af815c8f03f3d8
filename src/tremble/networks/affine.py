"""A linear layer applied so that a batch of samples goes fast through large weights."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float


def affine(layer: eqx.nn.Linear, x: Float[Array, "in"]) -> Float[Array, "out"]:
    """W x + b.

    Under `jax.vmap` the product is W X^T, from which XLA makes X W^T to save the transposition of its result. On a CPU
    it then turns W around instead, at every call, which for a few dozen samples takes nearly as long as the product.
    The barrier keeps W where it is. It saves the less the more samples there are: with the weights of Atari's network a
    fifth of the layers' update at 32 and a twentieth at 128, so layers that see every level apart do without.
    """
    product = jax.lax.optimization_barrier(layer.weight @ x)
    return product if layer.bias is None else product + layer.bias
