"""Replay as a pytree, for use inside a compiled loop."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from tremble.core import Transition


class Replay(eqx.Module):
    """Arrays ``[capacity + 1, ...]`` for each field of a transition.

    Size and next slot follow from the number of transitions so far, so they are not state. The spare slot takes the
    newest transition while the ``capacity`` before it are sampled: a compiled loop can then insert first and read
    afterwards, which XLA does in place, and still learn only from the past.
    """

    store: Transition

    @staticmethod
    def init(capacity: int, example: Transition) -> Replay:
        """Empty memory for transitions like ``example``."""
        slots = capacity + 1
        return Replay(jax.tree.map(lambda x: jnp.zeros((slots, *jnp.shape(x)), jnp.asarray(x).dtype), example))

    @property
    def capacity(self) -> int:
        """How many transitions can be sampled from."""
        return self.store.reward_t.shape[0] - 1

    def first(self, count: int) -> Replay:
        """The slots that ``count`` transitions have filled, to be saved."""
        return Replay(jax.tree.map(lambda x: x[: min(count, self.capacity + 1)], self.store))

    def with_capacity(self, capacity: int) -> Replay:
        """The same contents, read from a file, with empty slots up to a capacity; on the host."""
        missing = capacity - self.capacity

        def grown(x: np.ndarray) -> np.ndarray:
            return np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])

        return Replay(jax.tree.map(grown, self.store)) if missing else self

    def insert(self, count: int | Int[Array, ""], transition: Transition) -> Replay:
        """Store transition number ``count`` (from 0)."""
        at = count % (self.capacity + 1)
        return Replay(
            jax.tree.map(
                lambda s, x: jax.lax.dynamic_update_index_in_dim(s, x.astype(s.dtype), at, 0),
                self.store,
                transition,
            )
        )

    def sample(self, noise: UInt32[Array, "batch"], count: int | Int[Array, ""]) -> Transition:
        """Some of the ``capacity`` transitions up to number ``count - 1``, uniformly, with replacement.

        Transition number ``count`` may be stored already; it is not among them.
        """
        size = jnp.clip(jnp.asarray(count), 1, self.capacity)
        # The remainder of 32 random bits favours small numbers by at most size / 2^32: 0.02 % for a million.
        age = (noise % size.astype(jnp.uint32)).astype(jnp.int32)
        slot = (count - 1 - age) % (self.capacity + 1)
        batch: Transition = jax.tree.map(lambda s: s[slot], self.store)
        return batch._replace(weight=jnp.ones(noise.shape))


def draw_sample(key: PRNGKeyArray, batch_size: int) -> UInt32[Array, "batch"]:
    """The random numbers of one batch, drawn before it is known how much is stored."""
    return jax.random.bits(key, (batch_size,), jnp.uint32)
