"""The outputs of one action per sample, for less than the outputs of all.

An update regresses only the action that was taken, but a matrix product with the whole head computes all of them, three
times: forward, and backward for features and weights. Samples of one action form a group, and of B samples the k-th
largest group holds at most B/k. So groups in order of size fit products of B, B/2, ..., B/A rows whatever the actions
are: B (1 + 1/2 + ... + 1/A) rows in place of B A, which is half of the work at four actions and a fifth at eighteen.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

WORTH = 30e6
"""Operations saved by an update from which on groups are made: about 0.3 ms of a core, and sorting takes half of it."""


def worth_grouping(n_samples: int, n_actions: int, n_outputs: int, n_features: int) -> bool:
    """Whether groups save time. On an accelerator one large product is faster than several small ones."""
    rows = sum(group_sizes(n_samples, n_actions))
    saved = 6.0 * (n_samples * n_actions - rows) * n_outputs * n_features
    return saved >= WORTH and jax.default_backend() == "cpu"


def group_sizes(n_samples: int, n_actions: int) -> list[int]:
    """The most samples that the largest group, the second largest, ... can have; groups that must be empty left out."""
    return [n_samples // k for k in range(1, min(n_actions, n_samples) + 1)]


def outputs_taken(
    weight: Float[Array, "actions n features"],
    bias: Float[Array, "actions n"],
    features: Float[Array, "batch features"],
    action: Int[Array, "batch"],
) -> Float[Array, "batch n"]:
    """weight[action_b] @ features_b + bias[action_b] for every b."""
    n_samples, (n_actions, n_outputs, n_features) = features.shape[0], weight.shape
    seen = jnp.cumsum(jax.nn.one_hot(action, n_actions, dtype=jnp.int32), 0)  # [b, a]: samples of a up to b
    by_size = jnp.argsort(-seen[-1])
    sizes = seen[-1][by_size]
    starts = jnp.cumsum(sizes) - sizes
    place = starts[inverse(by_size)[action]] + jnp.take_along_axis(seen, action[:, None], 1)[:, 0] - 1
    order = inverse(place)
    weight, bias = permuted(weight, by_size, inverse(by_size)), permuted(bias, by_size, inverse(by_size))
    rows = jnp.pad(permuted(features, order, place), ((0, n_samples), (0, 0)))
    out = jnp.zeros((2 * n_samples, n_outputs), features.dtype)
    for k, size in enumerate(group_sizes(n_samples, n_actions)):
        group = jax.lax.dynamic_slice(rows, (starts[k], 0), (size, n_features))
        # Rows behind the end of the group belong to smaller groups, which write over them next, or to nobody.
        out = jax.lax.dynamic_update_slice(out, group @ weight[k].T + bias[k], (starts[k], 0))
    return permuted(out[:n_samples], place, order)


def inverse(order: Int[Array, "n"]) -> Int[Array, "n"]:
    """Where each index stands in the order."""
    return jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype), unique_indices=True)


@jax.custom_vjp
def permuted(x: Float[Array, "n *rest"], order: Int[Array, "n"], back: Int[Array, "n"]) -> Float[Array, "n *rest"]:
    """x[order], where ``back`` is the order's inverse: by it the gradient is read too, where JAX would scatter it."""
    return x[order]


permuted.defvjp(lambda x, order, back: (x[order], back), lambda back, gradient: (gradient[back], None, None))
