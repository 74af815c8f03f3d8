"""The five games of MinAtar, written in JAX."""

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


__all__ = ["GAMES", "Asterix", "Breakout", "Freeway", "MinAtar", "MinAtarState", "Seaquest", "SpaceInvaders", "minatar"]
