"""Space Invaders: shoot a block of aliens that marches to and fro, down, and shoots back."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tremble.worlds.minatar.world import FIRE, LEFT, NOOP, RIGHT, Picture, Whole, cell, whole

SHOT_INTERVAL, ALIEN_INTERVAL, FASTEST_INTERVAL, ALIEN_SHOT_INTERVAL = 5, 12, 6, 10
Map = Bool[Array, "*batch 10 10"]


class SpaceInvadersState(eqx.Module):
    """The cannon, maps of what is where, and the timers."""

    x: Whole
    shots: Map
    alien_shots: Map
    aliens: Map
    direction: Whole
    """-1 to the left, 1 to the right."""
    alien_interval: Whole
    """At most so many steps between two moves: fewer, when few aliens are left."""
    alien_timer: Whole
    alien_shot_timer: Whole
    shot_timer: Whole
    ramp_index: Whole


class SpaceInvaders(eqx.Module):
    """+1 for each alien; being hit or reached by one ends the game. A cleared wave is followed by a faster one."""

    ramping: bool = eqx.field(static=True, default=True)
    """Whether waves become faster."""

    minimal_actions: ClassVar[tuple[int, ...]] = (NOOP, LEFT, RIGHT, FIRE)
    start_numbers: ClassVar[int] = 0
    step_numbers: ClassVar[int] = 0

    def start(self, numbers: Float[Array, "0"]) -> SpaceInvadersState:
        """A whole wave, moving left."""
        nothing = jnp.zeros((10, 10), bool)
        return SpaceInvadersState(
            whole(5),
            nothing,
            nothing,
            wave(),
            whole(-1),
            whole(ALIEN_INTERVAL),
            whole(ALIEN_INTERVAL),
            whole(ALIEN_SHOT_INTERVAL),
            whole(0),
            whole(0),
        )

    def play(
        self, state: SpaceInvadersState, action: Int[Array, ""], numbers: Float[Array, "0"]
    ) -> tuple[SpaceInvadersState, Float[Array, ""], Bool[Array, ""]]:
        """The cannon, then shots, then aliens, then what was hit."""
        s = state
        fires = (action == FIRE) & (s.shot_timer == 0)
        x = jnp.clip(s.x + (action == RIGHT) - (action == LEFT), 0, 9)
        # A shot starts in the cannon's cell and moves at once, so it is first seen above.
        bottom = (jnp.arange(10) == 9)[:, None]
        column = jnp.arange(10) == x
        shots = moved_up(s.shots | (fires & bottom & column))
        alien_shots = moved_down(s.alien_shots)
        over = alien_shots[9, x] | s.aliens[9, x]

        moves = s.alien_timer == 0
        count = s.aliens.sum()
        to_left = s.direction < 0
        at_edge = jnp.where(to_left, s.aliens[:, 0].any(), s.aliens[:, 9].any())
        down, sideways = moves & at_edge, moves & ~at_edge
        over = over | (down & s.aliens[9].any())
        aliens = jnp.where(down, jnp.roll(s.aliens, 1, 0), s.aliens)
        shifted = jnp.where(to_left, jnp.roll(s.aliens, -1, 1), jnp.roll(s.aliens, 1, 1))
        aliens = jnp.where(sideways, shifted, aliens)
        over = over | (moves & aliens[9, x])

        # The lowest alien of the column nearest to the cannon shoots; of two columns the left one.
        shoots = s.alien_shot_timer == 0
        distance = jnp.where(aliens.any(0), 10 * jnp.abs(jnp.arange(10) - x) + jnp.arange(10), 1000)
        nearest = jnp.argmin(distance)
        lowest = 9 - jnp.argmax(aliens[::-1, nearest])
        alien_shots = alien_shots | (shoots & cell(nearest, lowest))

        killed = aliens & shots
        aliens, shots = aliens & ~killed, shots & ~killed
        cleared = ~aliens.any()
        harder = cleared & jnp.asarray(self.ramping) & (s.alien_interval > FASTEST_INTERVAL)
        after = SpaceInvadersState(
            x,
            shots,
            alien_shots,
            aliens | (cleared & wave()),
            jnp.where(down, -s.direction, s.direction),
            s.alien_interval - harder,
            jnp.where(moves, jnp.minimum(count, s.alien_interval), s.alien_timer) - 1,
            jnp.where(shoots, ALIEN_SHOT_INTERVAL, s.alien_shot_timer) - 1,
            jnp.maximum(jnp.where(fires, SHOT_INTERVAL, s.shot_timer) - 1, 0),
            s.ramp_index + harder,
        )
        return after, killed.sum().astype(jnp.float32), over

    def picture(self, state: SpaceInvadersState) -> Picture:
        """Aliens show where they are going."""
        to_left = state.direction < 0
        return {
            "cannon": cell(state.x, whole(9)),
            "alien": state.aliens,
            "alien_left": state.aliens & to_left,
            "alien_right": state.aliens & ~to_left,
            "friendly_bullet": state.shots,
            "enemy_bullet": state.alien_shots,
        }


def wave() -> Bool[Array, "10 10"]:
    """Four rows of six."""
    rows, columns = jnp.arange(10)[:, None], jnp.arange(10)
    return (rows < 4) & (columns >= 2) & (columns < 8)


def moved_up(shots: Bool[Array, "10 10"]) -> Bool[Array, "10 10"]:
    """One row up; what leaves the screen is gone."""
    return jnp.pad(shots[1:], ((0, 1), (0, 0)))


def moved_down(shots: Bool[Array, "10 10"]) -> Bool[Array, "10 10"]:
    """One row down; what leaves the screen is gone."""
    return jnp.pad(shots[:-1], ((1, 0), (0, 0)))
