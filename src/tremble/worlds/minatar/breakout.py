"""Breakout: keep the ball in play with a paddle of one cell and break three rows of bricks."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tremble.worlds.minatar.world import (
    LEFT,
    NOOP,
    RIGHT,
    Flag,
    Picture,
    Whole,
    cell,
    flag,
    in_rows,
    random_whole,
    whole,
)

LEFT_UP, RIGHT_UP, RIGHT_DOWN, LEFT_DOWN = range(4)
"""Directions of the ball. Numbered round the clock, so that a bounce flips bits of the number."""
TURN_X, BACK, TURN_Y = 1, 2, 3
"""Which bits: off a wall, straight back, and off a brick, the ceiling or the paddle."""


class BreakoutState(eqx.Module):
    """Ball, paddle and bricks."""

    ball_x: Whole
    ball_y: Whole
    direction: Whole
    last_x: Whole
    last_y: Whole
    """Where the ball came from."""
    paddle: Whole
    bricks: Bool[Array, "*batch 3 10"]
    """Those of the rows 1 to 3."""
    strike: Flag
    """Whether the ball broke a brick in the step before: then it passes the next one."""


class Breakout(eqx.Module):
    """+1 for each brick; a lost ball ends the game. A cleared wall is rebuilt when the ball comes down."""

    minimal_actions: ClassVar[tuple[int, ...]] = (NOOP, LEFT, RIGHT)
    start_numbers: ClassVar[int] = 1
    step_numbers: ClassVar[int] = 0

    def start(self, numbers: Float[Array, "1"]) -> BreakoutState:
        """The ball comes down from the left or the right edge, by chance."""
        right = random_whole(numbers[0], 0, 2) == 1
        x, y = jnp.where(right, 9, 0).astype(jnp.int32), whole(3)
        direction = jnp.where(right, LEFT_DOWN, RIGHT_DOWN).astype(jnp.int32)
        return BreakoutState(x, y, direction, x, y, whole(4), jnp.ones((3, 10), bool), flag(False))

    def play(
        self, state: BreakoutState, action: Int[Array, ""], numbers: Float[Array, "0"]
    ) -> tuple[BreakoutState, Float[Array, ""], Bool[Array, ""]]:
        """The paddle moves, then the ball."""
        s = state
        paddle = jnp.clip(s.paddle + (action == RIGHT) - (action == LEFT), 0, 9)
        to_right = (s.direction == RIGHT_UP) | (s.direction == RIGHT_DOWN)
        x = s.ball_x + jnp.where(to_right, 1, -1)
        y = s.ball_y + jnp.where(s.direction >= RIGHT_DOWN, 1, -1)

        wall = (x < 0) | (x > 9)
        x = jnp.clip(x, 0, 9)
        ceiling = y < 0
        row = jnp.clip(y - 1, 0, 2)
        brick = (y >= 1) & (y <= 3) & s.bricks[row, x]
        broken = brick & ~s.strike
        bottom = ~ceiling & ~brick & (y == 9)
        above_paddle = bottom & (s.ball_x == paddle)
        beside_paddle = bottom & ~above_paddle & (x == paddle)
        over = bottom & ~above_paddle & ~beside_paddle

        direction = s.direction ^ jnp.where(wall, TURN_X, 0)
        direction = direction ^ jnp.where(ceiling | broken | above_paddle, TURN_Y, jnp.where(beside_paddle, BACK, 0))
        hit = (jnp.arange(3)[:, None] == row) & (jnp.arange(10) == x) & broken
        bricks = s.bricks & ~hit
        bricks = bricks | (bottom & ~bricks.any())
        y = jnp.where(ceiling, 0, jnp.where(broken | above_paddle | beside_paddle, s.ball_y, y))
        # A strike lasts while the ball is inside bricks.
        after = BreakoutState(x, y, direction, s.ball_x, s.ball_y, paddle, bricks, brick)
        return after, broken.astype(jnp.float32), over

    def picture(self, state: BreakoutState) -> Picture:
        """The ball leaves a trail."""
        return {
            "paddle": cell(state.paddle, whole(9)),
            "ball": cell(state.ball_x, state.ball_y),
            "trail": cell(state.last_x, state.last_y),
            "brick": in_rows(state.bricks, 1),
        }
