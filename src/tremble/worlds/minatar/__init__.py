"""The five games of MinAtar, written in JAX."""

from typing import Any

from tremble.envs.jax_gym import JaxGymEnv
from tremble.settings import override
from tremble.worlds.minatar.asterix import Asterix
from tremble.worlds.minatar.breakout import Breakout
from tremble.worlds.minatar.freeway import Freeway
from tremble.worlds.minatar.seaquest import Seaquest
from tremble.worlds.minatar.space_invaders import SpaceInvaders
from tremble.worlds.minatar.world import Game, MinAtar, MinAtarState

GAMES: dict[str, type[Game]] = {
    "asterix": Asterix,
    "breakout": Breakout,
    "freeway": Freeway,
    "seaquest": Seaquest,
    "space_invaders": SpaceInvaders,
}
"""Games by the names the package has for them."""


def minatar(game: str) -> MinAtar:
    """A game as an environment."""
    return MinAtar(GAMES[game]())


def minatar_gym(game: str, render_mode: str | None = None, **options: Any) -> JaxGymEnv:
    """`tremble/MinAtar-Breakout-v0` and so on; options are the fields of `MinAtar` and of the game.

    Each step is a call into XLA, so this is for looking and for evaluation: training inside XLA (``minatar/breakout``)
    is many times as fast.
    """
    return JaxGymEnv(override(minatar(game), options), render_mode=render_mode)


__all__ = [
    "GAMES",
    "Asterix",
    "Breakout",
    "Freeway",
    "MinAtar",
    "MinAtarState",
    "Seaquest",
    "SpaceInvaders",
    "minatar",
    "minatar_gym",
]
