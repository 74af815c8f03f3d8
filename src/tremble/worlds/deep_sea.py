r"""Deep Sea: one sequence of N actions out of 2^N finds the reward, and every step towards it costs a little.

    S . . .       A block sinks one row per step and moves left or right. Right costs 0.01/N. Only by going right N
    . \ . .       times does it reach the bottom right cell and find the reward of 1 there, so random exploration
    . . \ .       needs about 2^N episodes. (Osband et al., arXiv:1703.07608 and arXiv:1806.03335)
    . . . 1

This follows bsuite's ``deep_sea`` and ``deep_sea_stochastic``, to the mapping of actions that a seed gives. What
differs: `optimal_return` is exact in the stochastic variant, where bsuite's lets the optimal policy pay for moves to
the right even after the wind has taken the reward out of reach; and bsuite's count of bad episodes is left out.
"""

from __future__ import annotations

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble.core import Settings
from tremble.settings import NON_NEGATIVE, Range

MOVE_COST = 0.01
"""What going right all the way costs."""


class DeepSeaState(eqx.Module):
    """The cell of the block; row ``size`` is the end of the episode."""

    row: Int[Array, "*batch"]
    column: Int[Array, "*batch"]


class DeepSea(Settings):
    """An N x N grid entered top left; episodes last exactly N steps."""

    size: Annotated[int, Range(2)] = eqx.field(static=True, default=10)
    """N."""
    stochastic: bool = eqx.field(static=True, default=False)
    """A move to the right fails with probability 1/N (it costs all the same, and the block only sinks), and the two
    bottom corners add N(0, 1) to the reward."""
    mapping_seed: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=42)
    """Which action is which in each cell, as in bsuite."""
    randomise_actions: bool = eqx.field(static=True, default=True)
    """Whether the seed decides that; if not, action 1 is right everywhere."""

    @property
    def n_actions(self) -> int:
        """Two: in each cell one of them is left and the other right."""
        return 2

    @property
    def right_action(self) -> Int[Array, "size size"]:
        """The action that means right in each cell."""
        shape = (self.size, self.size)
        if not self.randomise_actions:
            return jnp.ones(shape, jnp.int32)
        # The generator bsuite uses, so that a seed means the same grid.
        generator = np.random.RandomState(self.mapping_seed)
        return jnp.asarray(generator.binomial(1, 0.5, shape), jnp.int32)

    @property
    def success(self) -> float:
        """Probability that a move to the right succeeds."""
        return 1.0 - 1.0 / self.size if self.stochastic else 1.0

    @property
    def observation_table(self) -> Float[Array, "states size size"]:
        """Cells row by row, each a one in a grid of zeros; last, the empty grid that ends an episode."""
        n = self.size
        return jnp.eye(n * n + 1, n * n).reshape(-1, n, n)

    def reset(self, key: PRNGKeyArray) -> DeepSeaState:
        """Always top left."""
        return DeepSeaState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def draw(self, key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The wind, uniform in [0, 1), and a standard normal number for the reward."""
        wind_key, normal_key = jax.random.split(key)
        return jax.random.uniform(wind_key), jax.random.normal(normal_key)

    def step(
        self, state: DeepSeaState, action: Int[Array, ""], noise: tuple[Float[Array, ""], Float[Array, ""]]
    ) -> tuple[DeepSeaState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Next state, reward, terminated, truncated (never).

        The reward needs the choice of right in the bottom right cell, not its success.
        """
        wind, normal = noise
        last = self.size - 1
        right = self.goes_right(state, action)
        move = jnp.where(right, jnp.where(wind < self.success, 1, 0), -1)
        reward = jnp.where(right, (state.column == last) - MOVE_COST / self.size, 0.0)
        if self.stochastic:
            corner = (state.row == last) & ((state.column == 0) | (state.column == last))
            reward = reward + jnp.where(corner, normal, 0.0)
        sunk = DeepSeaState(state.row + 1, jnp.clip(state.column + move, 0, last))
        return sunk, reward, sunk.row == self.size, jnp.asarray(False)

    def observe(self, state: DeepSeaState) -> Float[Array, "size size"]:
        """A one in the block's cell; all zeros at the end."""
        # A number beyond the last cell has no one: the same row of the table, without building it.
        return jax.nn.one_hot(self.index(state), self.size**2).reshape(self.size, self.size)

    def index(self, state: DeepSeaState) -> Int[Array, ""]:
        """The cell's number, row by row; N^2 at the end."""
        return jnp.where(state.row < self.size, state.row * self.size + state.column, self.size**2)

    def goes_right(self, state: DeepSeaState, action: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the action means right in this cell."""
        return action == self.right_action[state.row, state.column]

    def is_optimal(self, state: DeepSeaState, action: Int[Array, ""]) -> Bool[Array, ""]:
        """Right on the diagonal; left, which costs nothing, wherever the reward is out of reach.

        For the undiscounted return, or a discount under which the reward is worth its cost.
        """
        return self.goes_right(state, action) == (state.row == state.column)

    def optimal_return(self, gamma: float = 1.0) -> float:
        """Best expected return from the start.

        With p the probability that a move to the right succeeds and m = 0.01/N its cost, going right on the diagonal is
        worth (gamma p)^(N-1) - m sum_{k<N} (gamma p)^k, and going left at once is worth 0.
        """
        reach = gamma * self.success
        cost = MOVE_COST / self.size * sum(reach**k for k in range(self.size))
        return max(reach ** (self.size - 1) - cost, 0.0)
