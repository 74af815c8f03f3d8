"""N-Chain with a safe end and a risky one: the paper's toy problem.

    [ N(10, 0.1^2) ] <- s1 <- s2 -> s3 -> [ 1/2 N(5, 0.1^2) + 1/2 N(13, 0.1^2) ]

The left end pays more on average (10 against 9), the right end varies more. An agent that takes spread for "not yet
explored" keeps going right. The dynamics below are written once, for JAX and for Gymnasium (`tremble/NChain-v0`).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble.core import Scalar, Settings
from tremble.settings import COUNT, NON_NEGATIVE, Range, SettingsError
from tremble.worlds.gaussian_mixture import GaussianMixture

LEFT, RIGHT, N_ACTIONS = 0, 1, 6
ENDS: tuple[tuple[int, Literal["left", "right"]], ...] = ((LEFT, "left"), (RIGHT, "right"))


class ChainState(eqx.Module):
    """Position 0 .. length-1 and steps taken in this episode."""

    position: Int[Array, "*batch"]
    elapsed: Int[Array, "*batch"]


class NChain(Settings):
    """A chain of states; actions 0 left, 1 right, 2 to 5 stay. The ends pay once and end the episode."""

    left_reward: Scalar = 10.0
    """Mean reward of the left end."""
    right_low: Scalar = 5.0
    """Lower mean of the right end's mixture."""
    right_high: Scalar = 13.0
    """Upper mean of the right end's mixture."""
    reward_noise: Annotated[Scalar, NON_NEGATIVE] = 0.1
    """Standard deviation of each Gaussian."""
    reward_scale: Scalar = 1.0
    """Every reward is multiplied by this."""
    length: Annotated[int, Range(3)] = eqx.field(static=True, default=5)
    """Number of states; odd, the start is in the middle."""
    reward_on: Literal["exit", "enter"] = eqx.field(static=True, default="exit")
    """``exit``: paid by any action taken in an end state, so the optimal return from the start is gamma^2 times the
    reward, the ground truth the paper states. ``enter``: paid on arrival, one step sooner."""
    encoding: Literal["one_hot", "thermometer"] = eqx.field(static=True, default="one_hot")
    """Observation of state s: the s-th unit vector, or ones up to and including s."""
    time_limit: Annotated[int, COUNT] | None = eqx.field(static=True, default=None)
    """Truncate episodes after this many steps (they then bootstrap); None never does."""

    def __check_init__(self) -> None:
        """Refuse chains without a middle, and unknown choices."""
        if self.length % 2 == 0:
            raise SettingsError(f"length must be odd, so that there is a middle; got {self.length}")
        if self.reward_on not in ("exit", "enter"):
            raise SettingsError(f"reward_on must be 'exit' or 'enter', got {self.reward_on!r}")
        if self.encoding not in ("one_hot", "thermometer"):
            raise SettingsError(f"encoding must be 'one_hot' or 'thermometer', got {self.encoding!r}")

    @property
    def n_actions(self) -> int:
        """Six: left, right and four that do nothing."""
        return N_ACTIONS

    @property
    def start(self) -> int:
        """The middle state."""
        return self.length // 2

    @property
    def observation_table(self) -> Float[Array, "states states"]:
        """Row s is the observation of state s."""
        return jnp.asarray(self.encode(np.arange(self.length)))

    def encode(self, position: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Observation vector of a position, in NumPy."""
        table = np.eye(self.length) if self.encoding == "one_hot" else np.tri(self.length)
        return table.astype(np.float32)[position]

    def dynamics(self, position: Any, elapsed: Any, action: Any, coin: Any, normal: Any, xp: Any = jnp) -> Any:
        """One step as a function of its randomness: ``coin`` uniform in [0, 1), ``normal`` standard normal.

        Returns next position, elapsed + 1, reward, terminated, truncated. ``xp`` is `jax.numpy` or `numpy`.
        """
        last = self.length - 1
        move = xp.where(action == LEFT, -1, xp.where(action == RIGHT, 1, 0))
        arrived = xp.clip(position + move, 0, last)
        at_end = (position == 0) | (position == last)
        if self.reward_on == "exit":
            terminated, paying, arrived = at_end, position, xp.where(at_end, position, arrived)
        else:
            terminated, paying = (arrived == 0) | (arrived == last), arrived
        right = xp.where(coin < 0.5, self.right_low, self.right_high)
        mean = xp.where(paying == 0, self.left_reward, right)
        reward = xp.where(terminated, self.reward_scale * (mean + self.reward_noise * normal), 0.0)
        elapsed = elapsed + 1
        limit = np.iinfo(np.int32).max if self.time_limit is None else self.time_limit
        return arrived, elapsed, reward, terminated, xp.logical_and(elapsed >= limit, xp.logical_not(terminated))

    def reset(self, key: PRNGKeyArray) -> ChainState:
        """Always the middle."""
        return ChainState(jnp.asarray(self.start, jnp.int32), jnp.asarray(0, jnp.int32))

    def draw(self, key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """A coin for the mixture and a standard normal number for the reward."""
        coin_key, normal_key = jax.random.split(key)
        return jax.random.uniform(coin_key), jax.random.normal(normal_key)

    def step(
        self, state: ChainState, action: Int[Array, ""], noise: tuple[Float[Array, ""], Float[Array, ""]]
    ) -> tuple[ChainState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Next state, reward, terminated, truncated."""
        position, elapsed, reward, terminated, truncated = self.dynamics(state.position, state.elapsed, action, *noise)
        return ChainState(position, elapsed), reward, terminated, truncated

    def observe(self, state: ChainState) -> Float[Array, "states"]:
        """The encoded position."""
        return self.observation_table[state.position]

    def index(self, state: ChainState) -> Int[Array, ""]:
        """The position."""
        return state.position

    def is_optimal(self, state: ChainState, action: Int[Array, ""]) -> Bool[Array, ""]:
        """The rule of `is_optimal_at`, for a state."""
        optimal: Bool[Array, ""] = self.is_optimal_at(state.position, action)
        return optimal

    def is_optimal_at(self, position: Any, action: Any) -> Any:
        """Towards the end with the larger mean reward; anything at that end (it only collects), nothing at the other.

        Left is that end for the paper's rewards, and if both are equal.
        """
        left = 1 * (self.reward_scale * self.left_reward >= self.reward_scale * (self.right_low + self.right_high) / 2)
        last = self.length - 1
        return (position == (1 - left) * last) | ((position > 0) & (position < last) & (action == 1 - left))

    def reward_law(self, end: Literal["left", "right"]) -> GaussianMixture:
        """Exact law of the reward an end pays."""
        means = [self.left_reward] if end == "left" else [self.right_low, self.right_high]
        law = GaussianMixture(
            np.full(len(means), 1.0 / len(means)), np.array(means, float), np.full(len(means), float(self.reward_noise))
        )
        return law.affine(0.0, float(self.reward_scale))

    def optimal_return(self, position: int, action: int, gamma: float) -> GaussianMixture:
        """Exact return distribution of taking ``action`` at ``position`` and going the optimal way from there on.

        The optimal way is to the end with the larger discounted mean reward, which differs from left only close to the
        right end (or when the rewards are changed).
        """
        return self._after(position, action, gamma, self.optimal_action)

    def committed_return(self, position: int, direction: int, gamma: float) -> GaussianMixture:
        """Exact return distribution of walking straight to one end, left (0) or right (1)."""
        return self._after(position, direction, gamma, lambda s, g: direction)

    def optimal_action(self, position: int, gamma: float) -> int:
        """Left or right, whichever end is worth more from here (left if equal)."""
        worth = [
            gamma ** self._steps_to_pay(position, direction) * self.reward_law(end).mean() for direction, end in ENDS
        ]
        return LEFT if worth[0] >= worth[1] else RIGHT

    def _steps_to_pay(self, position: int, direction: int) -> int:
        """Discount exponent of the reward when walking straight from here."""
        moves = position if direction == LEFT else self.length - 1 - position
        return moves if self.reward_on == "exit" else max(moves - 1, 0)

    def _after(self, position: int, action: int, gamma: float, policy: Any) -> GaussianMixture:
        exponent, last = 0, self.length - 1
        while True:
            move = {LEFT: -1, RIGHT: 1}.get(int(action), 0)
            arrived = min(max(position + move, 0), last)
            paying = position if self.reward_on == "exit" else arrived
            if paying in (0, last):
                law = self.reward_law("left" if paying == 0 else "right")
                return law.affine(0.0, math.pow(gamma, exponent))
            position, exponent = arrived, exponent + 1
            action = policy(position, gamma)
