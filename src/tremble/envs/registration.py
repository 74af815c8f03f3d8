"""The names under which Gymnasium knows the environments of this package."""

from __future__ import annotations

import gymnasium

NCHAIN_ID = "tremble/NChain-v0"
MINATAR_IDS = {
    "asterix": "tremble/MinAtar-Asterix-v0",
    "breakout": "tremble/MinAtar-Breakout-v0",
    "freeway": "tremble/MinAtar-Freeway-v0",
    "seaquest": "tremble/MinAtar-Seaquest-v0",
    "space_invaders": "tremble/MinAtar-SpaceInvaders-v0",
}


def register() -> None:
    """Make ``gymnasium.make("tremble/NChain-v0")`` and its like work; calling it again changes nothing.

    The entry points are strings, so an environment (and what it draws with) is imported when it is first made.
    """
    if NCHAIN_ID not in gymnasium.registry:
        gymnasium.register(NCHAIN_ID, entry_point="tremble.envs.gymnasium_chain:NChainEnv")
    for game, name in MINATAR_IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point="tremble.envs.gymnasium_minatar:make_minatar", kwargs={"game": game})
