"""The names under which Gymnasium knows the environments of this package."""

from __future__ import annotations

import gymnasium

NCHAIN_ID = "tremble/NChain-v0"


def register() -> None:
    """Make ``gymnasium.make("tremble/NChain-v0")`` work; calling it again changes nothing.

    The entry point is a string, so the environment (and what it draws with) is imported when it is first made.
    """
    if NCHAIN_ID not in gymnasium.registry:
        gymnasium.register(NCHAIN_ID, entry_point="tremble.envs.gymnasium_chain:NChainEnv")
