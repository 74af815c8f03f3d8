"""What the five games of MinAtar have in common: ten by ten cells, six actions that may stick, and a time limit.

MinAtar (Young and Tian, arXiv:1903.03176) shrinks five Atari games to pictures of ten by ten cells, one channel for
each kind of object. These are the games of the package ``minatar`` 1.0.15, rule by rule, with their random decisions
made explicit: a game consumes numbers from [0, 1) in the order in which the package asks its generator for them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

from tremble.core import Scalar, Settings
from tremble.settings import COUNT, SHARE, SettingsError

SIDE = 10
NOOP, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
ACTION_NAMES = ("wait", "left", "up", "right", "down", "fire")

PIXELS = 32
"""Pixels along the side of a cell."""
BACKGROUND, GRID = (24, 28, 36), (34, 39, 49)
COLOURS = (
    (242, 177, 52),
    (209, 73, 91),
    (96, 108, 128),
    (120, 190, 110),
    (86, 160, 211),
    (232, 126, 58),
    (155, 110, 190),
    (70, 180, 170),
    (235, 215, 120),
    (240, 240, 240),
)
"""For channels 0, 1, ...; where several are in a cell, the first is on top."""

Whole = Int[Array, "*batch"]
Flag = Bool[Array, "*batch"]
Picture = dict[str, Bool[Array, "10 10"]]
"""A map for each kind of object, by name: the channels of an observation, in this order."""


@runtime_checkable
class Game(Protocol):
    """The rules of one game. State is a pytree of small arrays; nothing in here knows of episodes or sticky actions."""

    minimal_actions: ClassVar[tuple[int, ...]]
    """The actions that do something."""
    start_numbers: ClassVar[int]
    """How many random numbers a start may need."""
    step_numbers: ClassVar[int]
    """How many a step may need."""

    def start(self, numbers: Float[Array, "start_numbers"]) -> PyTree:
        """First state."""
        ...

    def play(
        self, state: Any, action: Int[Array, ""], numbers: Float[Array, "step_numbers"]
    ) -> tuple[Any, Float[Array, ""], Bool[Array, ""]]:
        """Next state, reward, and whether the game is over."""
        ...

    def picture(self, state: Any) -> Picture:
        """What there is to see."""
        ...


class MinAtarState(eqx.Module):
    """A game in progress, the action that may stick, and the steps taken."""

    game: PyTree
    last_action: Whole
    elapsed: Whole


class MinAtar(Settings):
    """A game as an environment.

    The package remembers the last action across episodes, so that the first one of an episode may be the last of the
    episode before; here an episode starts from ``wait``.
    """

    game: Game
    sticky: Annotated[Scalar, SHARE] = 0.1
    """Probability that the last action is repeated in place of the chosen one."""
    actions: Literal["full", "minimal"] = eqx.field(static=True, default="full")
    """All six, as in the paper, or only those that do something in this game."""
    time_limit: Annotated[int, COUNT] | None = eqx.field(static=True, default=10_000)
    """Truncate episodes after this many steps (they then bootstrap). The package has no limit, and at the surface of
    Seaquest a game never ends; None is the package's way."""

    def __check_init__(self) -> None:
        """Refuse what no game can have."""
        if self.actions not in ("full", "minimal"):
            raise SettingsError(f"actions must be 'full' or 'minimal', got {self.actions!r}")

    @property
    def n_actions(self) -> int:
        """Six, or the number of those that do something."""
        return 6 if self.actions == "full" else len(self.game.minimal_actions)

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions do."""
        numbers = range(6) if self.actions == "full" else self.game.minimal_actions
        return tuple(ACTION_NAMES[a] for a in numbers)

    @property
    def observation_table(self) -> None:
        """There are too many pictures to list."""
        return None

    def reset(self, key: PRNGKeyArray) -> MinAtarState:
        """A new game."""
        numbers = jax.random.uniform(key, (self.game.start_numbers,))
        zero = jnp.zeros((), jnp.int32)
        return MinAtarState(self.game.start(numbers), zero, zero)

    def draw(self, key: PRNGKeyArray) -> Float[Array, "numbers"]:
        """Numbers from [0, 1): the first decides whether the action sticks, the rest are the game's."""
        return jax.random.uniform(key, (1 + self.game.step_numbers,))

    def step(
        self, state: MinAtarState, action: Int[Array, ""], noise: Float[Array, "numbers"]
    ) -> tuple[MinAtarState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Next state, reward, terminated, truncated."""
        if self.actions == "minimal":
            action = jnp.asarray(self.game.minimal_actions, jnp.int32)[action]
        action = jnp.where(noise[0] < self.sticky, state.last_action, action).astype(jnp.int32)
        game, reward, over = self.game.play(state.game, action, noise[1:])
        after = MinAtarState(game, action, state.elapsed + 1)
        late = False if self.time_limit is None else after.elapsed >= self.time_limit
        return after, reward.astype(jnp.float32), over, late & ~over

    def observe(self, state: MinAtarState) -> Bool[Array, "10 10 channels"]:
        """Which objects are where; one byte a cell in replay, made into numbers by the network."""
        return jnp.stack(list(self.game.picture(state.game).values()), -1)

    def index(self, state: MinAtarState) -> Int[Array, ""]:
        """There is no table to index."""
        return jnp.asarray(-1, jnp.int32)

    def is_optimal(self, state: MinAtarState, action: Int[Array, ""]) -> None:
        """Nobody knows."""
        return None

    def image(self, observation: Bool[np.ndarray, "10 10 channels"]) -> UInt8[np.ndarray, "height width 3"]:
        """An observation for people: cells as squares, a colour for each channel."""
        cells = np.full((*observation.shape[:2], 3), BACKGROUND, np.uint8)
        for channel in reversed(range(observation.shape[-1])):
            cells[observation[..., channel]] = COLOURS[channel % len(COLOURS)]
        image = cells.repeat(PIXELS, 0).repeat(PIXELS, 1)
        image[::PIXELS] = image[:, ::PIXELS] = GRID
        return image


def whole(number: int) -> Int[Array, ""]:
    """A number as part of a state."""
    return jnp.asarray(number, jnp.int32)


def flag(value: bool) -> Bool[Array, ""]:
    """A truth as part of a state."""
    return jnp.asarray(value)


def random_whole(number: Float[Array, "*batch"], low: int, high: int | Whole) -> Whole:
    """A number from [0, 1) as one of low, ..., high - 1."""
    n = jnp.asarray(high - low)
    return low + jnp.minimum((number * n).astype(jnp.int32), n - 1)


def one_hot(place: Whole, size: int = SIDE) -> Bool[Array, "*batch size"]:
    """True at a place, and nowhere if it is outside."""
    return place[..., None] == jnp.arange(size)


def cell(x: Int[Array, ""], y: Int[Array, ""]) -> Bool[Array, "10 10"]:
    """A single cell of the picture."""
    return one_hot(y)[:, None] & one_hot(x)[None, :]


def in_rows(rows: Bool[Array, "rows 10"], first: int) -> Bool[Array, "10 10"]:
    """Some rows of the picture, empty cells above and below."""
    return jnp.pad(rows, ((first, SIDE - first - rows.shape[0]), (0, 0)))
