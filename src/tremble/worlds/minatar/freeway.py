"""Freeway: cross eight lanes of cars as often as the time allows."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tremble.worlds.minatar.world import DOWN, NOOP, UP, Picture, Whole, cell, in_rows, one_hot, random_whole, whole

LANES, COLUMN, BOTTOM = 8, 4, 9
"""The player goes up and down one column; lane i is row i + 1."""
PLAYER_INTERVAL, TIME = 3, 2500
SPEEDS = 5


class FreewayState(eqx.Module):
    """The player and one car per lane."""

    y: Whole
    move_timer: Whole
    time: Whole
    """Steps left."""
    at: Int[Array, "*batch 8"]
    timer: Int[Array, "*batch 8"]
    speed: Int[Array, "*batch 8"]
    """Steps between two moves of the car, negative to the left."""


class Freeway(eqx.Module):
    """+1 for each crossing, after which the cars have new speeds; a car sends the player back; it ends with time."""

    minimal_actions: ClassVar[tuple[int, ...]] = (NOOP, UP, DOWN)
    start_numbers: ClassVar[int] = 2 * LANES
    step_numbers: ClassVar[int] = 2 * LANES

    def start(self, numbers: Float[Array, "16"]) -> FreewayState:
        """All cars at the left edge, with random speeds."""
        speed = random_speeds(numbers)
        return FreewayState(
            whole(BOTTOM), whole(PLAYER_INTERVAL), whole(TIME), jnp.zeros(LANES, jnp.int32), jnp.abs(speed), speed
        )

    def play(
        self, state: FreewayState, action: Int[Array, ""], numbers: Float[Array, "16"]
    ) -> tuple[FreewayState, Float[Array, ""], Bool[Array, ""]]:
        """The player moves, then the cars."""
        s = state
        free = s.move_timer == 0
        up, down = free & (action == UP), free & (action == DOWN)
        y = jnp.clip(s.y - up + down, 0, BOTTOM)
        move_timer = jnp.where(up | down, PLAYER_INTERVAL, s.move_timer)

        crossed = y == 0
        speed = jnp.where(crossed, random_speeds(numbers), s.speed)
        timer = jnp.where(crossed, jnp.abs(speed), s.timer)
        y = jnp.where(crossed, BOTTOM, y)

        moves = timer == 0
        at = jnp.where(moves, (s.at + jnp.sign(speed)) % 10, s.at)
        # Hit by where the car was or where it is now; there is one car in the player's lane.
        hit = (jnp.arange(1, LANES + 1) == y) & ((s.at == COLUMN) | (at == COLUMN))
        after = FreewayState(
            jnp.where(hit.any(), BOTTOM, y),
            jnp.maximum(move_timer - 1, 0),
            s.time - 1,
            at,
            jnp.where(moves, jnp.abs(speed), timer - 1),
            speed,
        )
        return after, crossed.astype(jnp.float32), after.time < 0

    def picture(self, state: FreewayState) -> Picture:
        """Each car leaves a trail, in the channel of its speed."""
        behind = one_hot((state.at - jnp.sign(state.speed)) % 10)
        slow = jnp.abs(state.speed)[:, None]
        trails = {f"speed{i}": in_rows(behind & (slow == i), 1) for i in range(1, 1 + SPEEDS)}
        return {"chicken": cell(whole(COLUMN), state.y), "car": in_rows(one_hot(state.at), 1), **trails}


def random_speeds(numbers: Float[Array, "16"]) -> Int[Array, "8"]:
    """1 to 5 in a random direction, for each lane."""
    slow = random_whole(numbers[:LANES], 1, 1 + SPEEDS)
    return jnp.where(numbers[LANES:] < 0.5, -slow, slow)
