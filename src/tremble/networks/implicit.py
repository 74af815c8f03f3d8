"""A network that takes a level besides the features, and gives that quantile of every action."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import split_key
from tremble.networks.heads import Head, make_head
from tremble.networks.layers import NoisyLinear, linear


def embed_level(
    embedding: eqx.nn.Linear, features: Float[Array, "features"], level: Float[Array, ""]
) -> Float[Array, "features"]:
    """features * phi(tau), phi(tau) = relu(embedding(cos(pi i tau), i = 1, 2, ...)).

    The published formula counts i from 0, the public code bases from 1; a constant cosine is what the bias is anyway.
    """
    cosines = jnp.cos(jnp.pi * jnp.arange(1, embedding.weight.shape[1] + 1) * level)
    return features * jax.nn.relu(embedding(cosines))


class ImplicitHead(eqx.Module):
    """Z_tau = out(relu(hidden(features * phi(tau)))), phi of `embed_level`."""

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
        self, features: Float[Array, "features"], levels: Float[Array, "n"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "actions n"]:
        """The quantiles of every action at the given levels, all through the same (noisy) weights."""
        hidden_key, out_key = split_key(key)

        def quantile(level: Float[Array, ""]) -> Float[Array, "actions"]:
            mixed = embed_level(self.embedding, features, level)
            return self.out(jax.nn.relu(self.hidden(mixed, key=hidden_key)), out_key)[:, 0]

        return jax.vmap(quantile, out_axes=1)(levels)
