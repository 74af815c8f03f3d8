r"""A grid with a short risky path and a long safe one.

    . . . . .      From S to G, with a reward of 1 at G and a cost for every step. Entering a cell marked ± adds or
    . . . . .      takes a stake with equal probability, and returns part of the step's cost, so the straight path has
    S ± ± ± G      the higher mean and the detour the lower variance. Moves slip sideways with a small probability.

`tremble.theory.risky_grid` enumerates it as a finite MDP, for exact solutions.
"""

from __future__ import annotations

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble.core import Scalar, Settings
from tremble.settings import SHARE, Range

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left, as changes of row and column."""


class RiskyGrid(Settings):
    """The state is the number of the cell, row by row; the number after the last cell is the end of the episode."""

    stake: Scalar = 0.5
    """Amount that a gamble adds or takes."""
    loss: Scalar = -0.03
    """Mean cost of a gamble; negative for a gain. Above ``-step_cost``, or endless gambling would be optimal."""
    step_cost: Scalar = 0.05
    slip: Annotated[Scalar, SHARE] = 0.1
    """Probability of a sideways move, equal for both sides."""
    width: Annotated[int, Range(3)] = eqx.field(static=True, default=5)
    height: Annotated[int, Range(2)] = eqx.field(static=True, default=3)

    @property
    def n_actions(self) -> int:
        """Up, right, down, left."""
        return len(MOVES)

    @property
    def n_cells(self) -> int:
        """Cells, without the end."""
        return self.width * self.height

    @property
    def start(self) -> int:
        """Bottom left."""
        return (self.height - 1) * self.width

    @property
    def observation_table(self) -> Float[Array, "states cells"]:
        """Unit vectors; zeros for the end."""
        return jnp.eye(self.n_cells + 1, self.n_cells)

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """Always bottom left."""
        return jnp.asarray(self.start, jnp.int32)

    def draw(self, key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """A number for the slip and one for the gamble, both uniform in [0, 1)."""
        slip_key, coin_key = jax.random.split(key)
        return jax.random.uniform(slip_key), jax.random.uniform(coin_key)

    def step(
        self, state: Int[Array, ""], action: Int[Array, ""], noise: tuple[Float[Array, ""], Float[Array, ""]]
    ) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Next state, reward, terminated, truncated (never); moves into walls have no effect."""
        slip, coin = noise
        turn = jnp.where(slip < self.slip / 2, 1, jnp.where(slip < self.slip, 3, 0))
        down, right = jnp.asarray(MOVES)[(action + turn) % 4]
        row, column = jnp.divmod(state, self.width)
        new_row = jnp.clip(row + down, 0, self.height - 1)
        new_column = jnp.clip(column + right, 0, self.width - 1)
        moved = (new_row != row) | (new_column != column)
        bottom = new_row == self.height - 1
        done = bottom & (new_column == self.width - 1)
        gambles = bottom & (new_column > 0) & ~done & moved
        gamble = jnp.where(coin < 0.5, -self.stake, self.stake) - self.loss
        reward = -self.step_cost + jnp.where(done, 1.0, 0.0) + jnp.where(gambles, gamble, 0.0)
        arrived = jnp.where(done, self.n_cells, new_row * self.width + new_column)
        return arrived.astype(jnp.int32), reward, done, jnp.asarray(False)

    def observe(self, state: Int[Array, ""]) -> Float[Array, "cells"]:
        """The cell as a unit vector."""
        return jax.nn.one_hot(state, self.n_cells)

    def index(self, state: Int[Array, ""]) -> Int[Array, ""]:
        """The cell."""
        return state

    def is_optimal(self, state: Int[Array, ""], action: Int[Array, ""]) -> None:
        """There is no answer: the optimal action depends on the risk attitude."""
        return None
