"""CartPole written in JAX, with the numbers of Gymnasium's CartPole-v1: somebody's own environment inside XLA."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MOST_X, MOST_ANGLE, TIME_LIMIT = 2.4, 12 * math.pi / 180, 500
State = tuple[Float[Array, "4"], Int[Array, ""]]


class JaxCartPole(eqx.Module):
    """Position, velocity, angle and its velocity; reward 1 until the pole falls or 500 steps are made."""

    n_actions: int = eqx.field(static=True, default=2)
    observation_table = None

    def reset(self, key: PRNGKeyArray) -> State:
        """All four within 0.05 of zero."""
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.zeros((), jnp.int32)

    def draw(self, key: PRNGKeyArray) -> tuple[()]:
        """Steps are not random."""
        return ()

    def step(
        self, state: State, action: Int[Array, ""], noise: Any
    ) -> tuple[State, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """A step of Euler's method."""
        (_, speed, angle, turning), elapsed = state
        force, total = jnp.where(action == 1, FORCE, -FORCE), CART + POLE
        pushed = (force + POLE * HALF_LENGTH * turning**2 * jnp.sin(angle)) / total
        turned = (GRAVITY * jnp.sin(angle) - jnp.cos(angle) * pushed) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE * jnp.cos(angle) ** 2 / total)
        )
        moved = pushed - POLE * HALF_LENGTH * turned * jnp.cos(angle) / total
        after = state[0] + SECONDS * jnp.stack([speed, moved, turning, turned])
        fell = (jnp.abs(after[0]) > MOST_X) | (jnp.abs(after[2]) > MOST_ANGLE)
        return (after, elapsed + 1), jnp.ones(()), fell, elapsed + 1 >= TIME_LIMIT

    def observe(self, state: State) -> Float[Array, "4"]:
        """The four numbers."""
        return state[0]

    def index(self, state: State) -> Int[Array, ""]:
        """There is no table."""
        return state[1]

    def is_optimal(self, state: State, action: Int[Array, ""]) -> None:
        """It cannot tell."""
