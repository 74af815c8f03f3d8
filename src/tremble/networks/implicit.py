"""A network that takes a level besides the features, and gives that quantile of every action.

All products have two axes: a row per pair of a sample and a level. XLA runs those as one matrix product, which nested
`jax.vmap` over samples and levels does not give.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import split_key
from tremble.networks.heads import Head, batch_outputs, make_head
from tremble.networks.layers import NoisyLinear, batch_linear, linear


def cos_pi(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """cos(pi x), to a few units in the last place for |x| up to thousands; x is treated as a constant.

    With r = x - 2 round(x/2) in [-1, 1] and q = 1/2 - |r|, cos(pi x) = sin(pi q), |pi q| <= pi/2: a short Taylor
    polynomial. XLA's own cosine is computed number by number on a CPU and takes ten times as long.
    """
    x = jax.lax.stop_gradient(x)
    angle = math.pi * (0.5 - jnp.abs(x - 2.0 * jnp.round(x / 2.0)))
    n_terms = 6 if jnp.finfo(x.dtype).bits <= 32 else 10
    square, total = angle * angle, jnp.zeros_like(angle)
    for k in reversed(range(n_terms)):
        total = total * square + (-1) ** k / math.factorial(2 * k + 1)
    return angle * total


def embed_levels(embedding: eqx.nn.Linear, levels: Float[Array, "*shape"]) -> Float[Array, "*shape features"]:
    """phi(tau) = relu(embedding(cos(pi i tau), i = 1, 2, ...)) of every level.

    The published formula counts i from 0, the public code bases from 1; a constant cosine is what the bias is anyway.
    """
    multiples = jnp.arange(1, embedding.weight.shape[1] + 1, dtype=embedding.weight.dtype)
    cosines = cos_pi(levels.reshape(-1, 1) * multiples)
    return jax.nn.relu(batch_linear(embedding, cosines)).reshape(*levels.shape, -1)


class ImplicitHead(eqx.Module):
    """Z_tau = out(relu(hidden(features * phi(tau)))), phi of `embed_levels`."""

    embedding: eqx.nn.Linear
    hidden: eqx.nn.Linear | NoisyLinear
    out: Head

    def __init__(
        self,
        key: PRNGKeyArray,
        n_features: int,
        n_actions: int,
        n_cosines: int,
        n_hidden: int,
        dueling: bool,
        noisy: bool,
    ):
        """Fresh layers; ``n_hidden`` 0 means as many as features."""
        embedding_key, hidden_key, out_key = jax.random.split(key, 3)
        n_hidden = n_hidden or n_features
        self.embedding = eqx.nn.Linear(n_cosines, n_features, key=embedding_key)
        self.hidden = linear(hidden_key, n_features, n_hidden, noisy)
        self.out = make_head(out_key, n_hidden, n_actions, 1, dueling, noisy)

    def __call__(
        self,
        features: Float[Array, "batch features"],
        levels: Float[Array, "#batch n"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch actions n"]:
        """The quantiles of every action at each sample's levels, all through the same (noisy) weights."""
        hidden_key, out_key = split_key(key)
        mixed = features[:, None] * embed_levels(self.embedding, levels)
        hidden = jax.nn.relu(batch_linear(self.hidden, mixed.reshape(-1, mixed.shape[-1]), hidden_key))
        outputs = batch_outputs(self.out, hidden, out_key)[:, :, 0]
        return outputs.reshape(*mixed.shape[:2], -1).transpose(0, 2, 1)
