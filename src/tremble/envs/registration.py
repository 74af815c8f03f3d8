"""The names under which Gymnasium knows the environments of this package."""

from __future__ import annotations

import gymnasium

from tremble.envs.atari_games import GAMES, id_of

NCHAIN_ID = "tremble/NChain-v0"


def register() -> None:
    """Make ``gymnasium.make("tremble/NChain-v0")`` and ``gymnasium.make("atari/Pong")`` work, once.

    Entry points are strings, so an environment (and the emulator behind it) is imported when it is first made.
    """
    if NCHAIN_ID not in gymnasium.registry:
        gymnasium.register(NCHAIN_ID, entry_point="tremble.envs.gymnasium_chain:NChainEnv")
    for rom in GAMES:
        if id_of(rom) not in gymnasium.registry:
            gymnasium.register(
                id_of(rom), entry_point="tremble.envs.atari:AtariGame", kwargs={"game": rom}, order_enforce=False,
                disable_env_checker=True,
            )  # fmt: skip
