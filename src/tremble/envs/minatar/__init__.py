"""The five games of MinAtar, written in JAX."""

from tremble.envs.minatar.asterix import Asterix
from tremble.envs.minatar.breakout import Breakout
from tremble.envs.minatar.freeway import Freeway
from tremble.envs.minatar.seaquest import Seaquest
from tremble.envs.minatar.space_invaders import SpaceInvaders
from tremble.envs.minatar.world import Game, MinAtar, MinAtarState

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
