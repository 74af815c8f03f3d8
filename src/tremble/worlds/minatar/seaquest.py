"""Seaquest: a submarine rescues divers, shoots fish and enemy submarines, and must surface before its oxygen is gone.

The package keeps lists of objects, and which of several objects in one cell is hit depends on their order. Arrays of
fixed size without an order can stand in for the lists, because of what cannot happen:

- At most two of the player's shots and two divers are in the water, at most thirty enemies (one appears per step at the
  most, and by then each crosses the screen in thirty).
- Two shots of the player are never in one cell: both run away from the submarine, which is not faster.
- Two enemies of a kind never arrive in one cell in the same step: they appear in different ones and keep that distance.
  So where several are in one cell, they can be told apart by their timers, and the first in the list has least left.
- Enemy shots neither meet anything but the player nor differ in anything but place and direction.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tremble.worlds.minatar.world import (
    DOWN,
    FIRE,
    LEFT,
    NOOP,
    RIGHT,
    UP,
    Flag,
    Picture,
    Whole,
    cell,
    flag,
    in_rows,
    random_whole,
    whole,
)

OXYGEN, CREW = 200, 6
SPAWN_INTERVAL, DIVER_INTERVAL, MOVE_INTERVAL, FASTEST_INTERVAL = 20, 30, 5, 2
SHOT_INTERVAL, ENEMY_SHOT_INTERVAL, DIVER_MOVE_INTERVAL = 5, 10, 5
ENEMIES = 32
T = TypeVar("T", bound="Pair")
ROWS = 8
"""Rows 1 to 8 are water; row 0 is the surface, row 9 shows the metrics."""


class Pair(eqx.Module):
    """Two things in the water, the newer one last: the player's shots."""

    there: Bool[Array, "*batch 2"]
    x: Int[Array, "*batch 2"]
    y: Int[Array, "*batch 2"]
    right: Bool[Array, "*batch 2"]


class Divers(Pair):
    """Divers move only when their timer is at zero."""

    timer: Int[Array, "*batch 2"]


class Enemies(eqx.Module):
    """Fish and submarines in any order."""

    there: Bool[Array, "*batch 32"]
    submarine: Bool[Array, "*batch 32"]
    x: Int[Array, "*batch 32"]
    y: Int[Array, "*batch 32"]
    right: Bool[Array, "*batch 32"]
    timer: Int[Array, "*batch 32"]
    shot_timer: Int[Array, "*batch 32"]


class SeaquestState(eqx.Module):
    """The player's submarine, everything in the water, and the timers."""

    x: Whole
    y: Whole
    right: Flag
    oxygen: Whole
    crew: Whole
    """Divers on board. As in the package it is -1 after six were brought up."""
    surfaced: Flag
    shots: Pair
    shots_left: Bool[Array, "*batch 8 10"]
    shots_right: Bool[Array, "*batch 8 10"]
    """Where enemy shots run to the left and to the right."""
    enemies: Enemies
    divers: Divers
    spawn_interval: Whole
    spawn_timer: Whole
    diver_timer: Whole
    move_interval: Whole
    shot_timer: Whole
    ramp_index: Whole


class Seaquest(eqx.Module):
    """+1 for each enemy shot, and up to 10, by the oxygen left, for bringing up six divers at once."""

    ramping: bool = eqx.field(static=True, default=True)
    """Whether each surfacing makes it harder."""

    minimal_actions: ClassVar[tuple[int, ...]] = (NOOP, LEFT, UP, RIGHT, DOWN, FIRE)
    start_numbers: ClassVar[int] = 0
    step_numbers: ClassVar[int] = 5

    def start(self, numbers: Float[Array, "0"]) -> SeaquestState:
        """At the surface of an empty sea."""
        no, zero = jnp.zeros(2, bool), jnp.zeros(2, jnp.int32)
        none, nought = jnp.zeros(ENEMIES, bool), jnp.zeros(ENEMIES, jnp.int32)
        clear = jnp.zeros((ROWS, 10), bool)
        return SeaquestState(
            whole(5),
            whole(0),
            flag(False),
            whole(OXYGEN),
            whole(0),
            flag(True),
            Pair(no, zero, zero, no),
            clear,
            clear,
            Enemies(none, none, nought, nought, none, nought, nought),
            Divers(no, zero, zero, no, zero),
            whole(SPAWN_INTERVAL),
            whole(SPAWN_INTERVAL),
            whole(DIVER_INTERVAL),
            whole(MOVE_INTERVAL),
            whole(0),
            whole(0),
        )

    def play(
        self, state: SeaquestState, action: Int[Array, ""], numbers: Float[Array, "5"]
    ) -> tuple[SeaquestState, Float[Array, ""], Bool[Array, ""]]:
        """New enemies and divers, the player, the player's shots, divers, enemies and their shots, the surface."""
        s = state
        spawns, dives = s.spawn_timer == 0, s.diver_timer == 0
        enemies = with_enemy(s.enemies, spawns, numbers[:3], s.move_interval)
        from_left = numbers[3] < 1 / 2
        start, row = jnp.where(from_left, 0, 9), random_whole(numbers[4], 1, 9)
        divers = with_newest(s.divers, dives, True, start, row, from_left, DIVER_MOVE_INTERVAL)
        fires = (action == FIRE) & (s.shot_timer == 0)
        shots = with_newest(s.shots, fires, True, s.x, s.y, s.right)
        x = jnp.clip(s.x + (action == RIGHT) - (action == LEFT), 0, 9)
        y = jnp.clip(s.y + (action == DOWN) - (action == UP), 0, 8)
        right = (s.right | (action == RIGHT)) & (action != LEFT)

        shots, enemies, hits = move_shots(shots, enemies)
        divers, crew = move_divers(divers, s.crew, x, y)
        shots, enemies, more_hits, met, fired = move_enemies(shots, enemies, s.move_interval, x, y)
        shots_left = s.shots_left | occupied(fired & ~enemies.right, enemies.x, enemies.y)
        shots_right = s.shots_right | occupied(fired & enemies.right, enemies.x, enemies.y)
        here = cell(x, y)[1 : ROWS + 1]
        shot = (here & (shots_left | shots_right)).any()
        shots_left = jnp.pad(shots_left[:, 1:], ((0, 0), (0, 1)))
        shots_right = jnp.pad(shots_right[:, :-1], ((0, 0), (1, 0)))
        shot = shot | (here & (shots_left | shots_right)).any()

        # Without divers on board there is no coming up; one of them leaves each time, or all if they are six.
        under = y > 0
        arrives = ~under & ~s.surfaced
        comes_up = arrives & (crew != 0)
        full = crew == CREW
        bonus = jnp.where(comes_up & full, s.oxygen * 10 // OXYGEN, 0)
        over = met | shot | (s.oxygen <= 0) | (arrives & (crew == 0))
        hardest = (s.spawn_interval <= 1) & (s.move_interval <= FASTEST_INTERVAL)
        harder = comes_up & jnp.asarray(self.ramping) & ~hardest
        after = SeaquestState(
            x,
            y,
            right,
            jnp.where(comes_up, OXYGEN, s.oxygen - under),
            jnp.where(comes_up, jnp.where(full, 0, crew) - 1, crew),
            ~under & (s.surfaced | comes_up),
            shots,
            shots_left,
            shots_right,
            enemies,
            divers,
            s.spawn_interval - (harder & (s.spawn_interval > 1)),
            jnp.maximum(jnp.where(spawns, s.spawn_interval, s.spawn_timer) - 1, 0),
            jnp.maximum(jnp.where(dives, DIVER_INTERVAL, s.diver_timer) - 1, 0),
            s.move_interval - (harder & (s.move_interval > FASTEST_INTERVAL) & (s.ramp_index % 2 == 1)),
            jnp.maximum(jnp.where(fires, SHOT_INTERVAL, s.shot_timer) - 1, 0),
            s.ramp_index + harder,
        )
        return after, (hits + more_hits + bonus).astype(jnp.float32), over

    def picture(self, state: SeaquestState) -> Picture:
        """Everything that swims leaves a trail; the metrics are in the last row."""
        s, e, d = state, state.enemies, state.divers
        columns = jnp.arange(10)
        last = (jnp.arange(10) == 9)[:, None]
        fish, submarines = e.there & ~e.submarine, e.there & e.submarine
        trail = occupied(e.there, behind(e.x, e.right), e.y) | occupied(d.there, behind(d.x, d.right), d.y)
        return {
            "sub_front": cell(s.x, s.y),
            "sub_back": cell(behind(s.x, s.right), s.y),
            "friendly_bullet": in_rows(occupied(s.shots.there, s.shots.x, s.shots.y, top=0), 0),
            "trail": in_rows(trail, 1),
            "enemy_bullet": in_rows(s.shots_left | s.shots_right, 1),
            "enemy_fish": in_rows(occupied(fish, e.x, e.y), 1),
            "enemy_sub": in_rows(occupied(submarines, e.x, e.y), 1),
            "oxygen_gauge": last & (columns < jnp.maximum(s.oxygen, 0) * 10 // OXYGEN),
            "diver_gauge": last & (columns >= 9 - s.crew) & (columns < 9),
            "diver": in_rows(occupied(d.there, d.x, d.y), 1),
        }


def behind(x: Whole, right: Flag) -> Whole:
    """The cell from which something comes."""
    return x - jnp.where(right, 1, -1)


def occupied(there: Bool[Array, "n"], x: Int[Array, "n"], y: Int[Array, "n"], top: int = 1) -> Bool[Array, "rows 10"]:
    """The cells that some of n things are in, from row ``top`` to the last row of the water."""
    rows = ROWS + 1 - top
    inside = there & (x >= 0) & (x <= 9) & (y >= top)
    number = jnp.where(inside, (y - top) * 10 + x, -1)
    return (number[:, None] == jnp.arange(rows * 10)).any(0).reshape(rows, 10)


def with_enemy(
    enemies: Enemies, spawns: Bool[Array, ""], numbers: Float[Array, "3"], move_interval: Int[Array, ""]
) -> Enemies:
    """Perhaps a new fish or submarine; none in a row where others come from the other side."""
    e = enemies
    right, y = numbers[0] < 1 / 2, random_whole(numbers[2], 1, 9)
    blocked = (e.there & (e.y == y) & (e.right != right)).any()
    new = spawns & ~blocked & (jnp.arange(ENEMIES) == jnp.argmin(e.there))
    return Enemies(
        e.there | new,
        jnp.where(new, numbers[1] < 1 / 3, e.submarine),
        jnp.where(new, jnp.where(right, 0, 9), e.x),
        jnp.where(new, y, e.y),
        jnp.where(new, right, e.right),
        jnp.where(new, move_interval, e.timer),
        jnp.where(new, ENEMY_SHOT_INTERVAL, e.shot_timer),
    )


def with_newest(pair: T, appears: Bool[Array, ""], *new: Array | int | bool) -> T:
    """Two divers or shots, perhaps with a new one, given by its fields; the one before the last has left by then."""

    def append(old: Array, value: Array | int | bool) -> Array:
        return jnp.where(appears, jnp.stack([old[1], jnp.asarray(value, old.dtype)]), old)

    return type(pair)(*map(append, jax.tree.leaves(pair), new))


def same_cell(shots: Pair, enemies: Enemies) -> Bool[Array, "2 32"]:
    """Which shot is where which enemy is."""
    s, e = shots, enemies
    there = s.there[:, None] & e.there
    return there & (s.x[:, None] == e.x) & (s.y[:, None] == e.y)


def move_shots(shots: Pair, enemies: Enemies) -> tuple[Pair, Enemies, Int[Array, ""]]:
    """Each shot hits one enemy in its new cell: a fish before a submarine, the earlier before the later."""
    x = shots.x + jnp.where(shots.right, 1, -1)
    shots = Pair(shots.there & (x >= 0) & (x <= 9), x, shots.y, shots.right)
    match = same_cell(shots, enemies)
    rank = jnp.where(match, enemies.timer + jnp.where(enemies.submarine, 100, 0), 1000)
    first = rank.min(1)
    hit = match & (rank == first[:, None])
    spent = first < 1000
    shots = eqx.tree_at(lambda s: s.there, shots, shots.there & ~spent)
    enemies = eqx.tree_at(lambda e: e.there, enemies, enemies.there & ~hit.any(0))
    return shots, enemies, spent.sum()


def move_divers(
    divers: Divers, crew: Int[Array, ""], x: Int[Array, ""], y: Int[Array, ""]
) -> tuple[Divers, Int[Array, ""]]:
    """Divers come on board where the submarine is, before or after they move, the newer one first."""
    d = divers
    moved = d.x + jnp.where(d.timer == 0, jnp.where(d.right, 1, -1), 0)
    remain: list[Bool[Array, ""]] = []
    for i in (1, 0):
        room = crew < CREW
        at_once = room & (d.x[i] == x) & (d.y[i] == y)
        in_water = (moved[i] >= 0) & (moved[i] <= 9)
        taken = d.there[i] & (at_once | (room & in_water & (moved[i] == x) & (d.y[i] == y)))
        crew = crew + taken
        remain.insert(0, d.there[i] & ~taken & in_water)
    timer = jnp.where(d.timer == 0, DIVER_MOVE_INTERVAL, d.timer - 1)
    return Divers(jnp.stack(remain), moved, d.y, d.right, timer), crew


def move_enemies(
    shots: Pair, enemies: Enemies, move_interval: Int[Array, ""], x: Int[Array, ""], y: Int[Array, ""]
) -> tuple[Pair, Enemies, Int[Array, ""], Bool[Array, ""], Bool[Array, "32"]]:
    """Also: how many ran into shots, whether one met the player, and which submarines fired.

    A submarine fires even in the step in which it is hit.
    """
    e = enemies
    met = (e.there & (e.x == x) & (e.y == y)).any()
    moves = e.there & (e.timer == 0)
    at = e.x + jnp.where(moves, jnp.where(e.right, 1, -1), 0)
    there = e.there & (at >= 0) & (at <= 9)
    at_player = there & (at == x) & (e.y == y)
    met = met | at_player.any()
    fires = e.there & e.submarine & (e.shot_timer == 0)
    after = Enemies(
        there,
        e.submarine,
        at,
        e.y,
        e.right,
        jnp.where(moves, move_interval, e.timer - 1),
        jnp.where(e.shot_timer == 0, ENEMY_SHOT_INTERVAL, e.shot_timer - 1),
    )
    # Submarines move before fish, so a shot that both run into is theirs.
    match = same_cell(shots, after) & moves & ~at_player
    by_submarine = match & e.submarine
    by_fish = match & ~e.submarine & ~by_submarine.any(1, keepdims=True)
    hit = by_submarine | by_fish
    spent = hit.any(1)
    shots = eqx.tree_at(lambda s: s.there, shots, shots.there & ~spent)
    after = eqx.tree_at(lambda a: a.there, after, there & ~hit.any(0))
    return shots, after, spent.sum(), met, fires
