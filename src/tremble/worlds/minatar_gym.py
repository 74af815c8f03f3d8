"""MinAtar for Gymnasium: the games of `tremble.worlds.minatar`, stepped one call at a time."""

from __future__ import annotations

from typing import Any

from tremble.envs.jax_gym import JaxGymEnv
from tremble.settings import override
from tremble.worlds.minatar import minatar


def make_minatar(game: str, render_mode: str | None = None, **options: Any) -> JaxGymEnv:
    """`tremble/MinAtar-Breakout-v0` and so on; options are the fields of `MinAtar` and of the game.

    Each step is a call into XLA, so this is for looking and for evaluation: training inside XLA (``minatar/breakout``)
    is many times as fast.
    """
    return JaxGymEnv(override(minatar(game), options), render_mode=render_mode)
