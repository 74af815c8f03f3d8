"""Asterix: gather gold, avoid enemies. Both cross the screen, more and faster as time goes on."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tremble.worlds.minatar.world import (
    DOWN,
    LEFT,
    NOOP,
    RIGHT,
    UP,
    Picture,
    Whole,
    cell,
    in_rows,
    one_hot,
    random_whole,
    whole,
)

ROWS = 8
"""Each row from the second to the last but one holds at most one thing."""
RAMP_INTERVAL, SPAWN_INTERVAL, MOVE_INTERVAL = 100, 10, 5


class AsterixState(eqx.Module):
    """The player, one thing per row, and the timers."""

    x: Whole
    y: Whole
    there: Bool[Array, "*batch 8"]
    """Whether a row has something in it."""
    at: Int[Array, "*batch 8"]
    """Where it is."""
    rightwards: Bool[Array, "*batch 8"]
    gold: Bool[Array, "*batch 8"]
    """Gold, or else an enemy."""
    spawn_interval: Whole
    spawn_timer: Whole
    move_interval: Whole
    move_timer: Whole
    ramp_timer: Whole
    ramp_index: Whole


class Asterix(eqx.Module):
    """+1 for each piece of gold; touching an enemy ends the game."""

    ramping: bool = eqx.field(static=True, default=True)
    """Whether it becomes harder with time."""

    minimal_actions: ClassVar[tuple[int, ...]] = (NOOP, LEFT, UP, RIGHT, DOWN)
    start_numbers: ClassVar[int] = 0
    step_numbers: ClassVar[int] = 3

    def start(self, numbers: Float[Array, "0"]) -> AsterixState:
        """The player in the middle of an empty screen."""
        nothing = jnp.zeros(ROWS, bool)
        return AsterixState(
            whole(5),
            whole(5),
            nothing,
            jnp.zeros(ROWS, jnp.int32),
            nothing,
            nothing,
            whole(SPAWN_INTERVAL),
            whole(SPAWN_INTERVAL),
            whole(MOVE_INTERVAL),
            whole(MOVE_INTERVAL),
            whole(RAMP_INTERVAL),
            whole(0),
        )

    def play(
        self, state: AsterixState, action: Int[Array, ""], numbers: Float[Array, "3"]
    ) -> tuple[AsterixState, Float[Array, ""], Bool[Array, ""]]:
        """Something new appears; the player moves; things move."""
        s = state
        # Something new: from a random side, gold one time in three, in a random one of the empty rows.
        spawn = s.spawn_timer == 0
        from_left = numbers[0] < 1 / 2
        empty = ~s.there
        order = jnp.cumsum(empty) - 1
        new = spawn & empty & (order == random_whole(numbers[2], 0, jnp.maximum(empty.sum(), 1)))
        there = s.there | new
        at = jnp.where(new, jnp.where(from_left, 0, 9), s.at)
        rightwards = jnp.where(new, from_left, s.rightwards)
        gold = jnp.where(new, numbers[1] < 1 / 3, s.gold)

        x = jnp.clip(s.x + (action == RIGHT) - (action == LEFT), 0, 9)
        y = jnp.clip(s.y + (action == DOWN) - (action == UP), 1, 8)

        in_row = jnp.arange(1, ROWS + 1) == y
        touched = there & in_row & (at == x)
        reward = (touched & gold).sum()
        over = (touched & ~gold).any()
        there = there & ~(touched & gold)

        moves = s.move_timer == 0
        at = jnp.where(moves & there, at + jnp.where(rightwards, 1, -1), at)
        there = there & (at >= 0) & (at <= 9)
        touched = moves & there & in_row & (at == x)
        reward = reward + (touched & gold).sum()
        over = over | (touched & ~gold).any()
        there = there & ~(touched & gold)

        # Every second step of the ramp things also move faster.
        hardest = (s.spawn_interval <= 1) & (s.move_interval <= 1)
        due = jnp.asarray(self.ramping) & ~hardest & (s.ramp_timer < 0)
        waiting = jnp.asarray(self.ramping) & ~hardest & (s.ramp_timer >= 0)
        faster = due & (s.move_interval > 1) & (s.ramp_index % 2 == 1)
        after = AsterixState(
            x,
            y,
            there,
            at,
            rightwards,
            gold,
            s.spawn_interval - (due & (s.spawn_interval > 1)),
            jnp.where(spawn, s.spawn_interval, s.spawn_timer) - 1,
            s.move_interval - faster,
            jnp.where(moves, s.move_interval, s.move_timer) - 1,
            jnp.where(due, RAMP_INTERVAL, s.ramp_timer - waiting),
            s.ramp_index + due,
        )
        return after, reward.astype(jnp.float32), over

    def picture(self, state: AsterixState) -> Picture:
        """Things leave a trail in the cell they come from."""
        here = one_hot(state.at) & state.there[:, None]
        behind = one_hot(state.at - jnp.where(state.rightwards, 1, -1)) & state.there[:, None]
        gold = state.gold[:, None]
        return {
            "player": cell(state.x, state.y),
            "enemy": in_rows(here & ~gold, 1),
            "trail": in_rows(behind, 1),
            "gold": in_rows(here & gold, 1),
        }
