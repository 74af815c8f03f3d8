"""Environments of this package, written in JAX: N-Chain, Deep Sea, the risky grid, MinAtar, and probes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import gymnasium

from tremble.core import JaxEnv
from tremble.envs.registry import register_jax_env
from tremble.worlds import hyperparameters, probes
from tremble.worlds.deep_sea import DeepSea
from tremble.worlds.minatar import GAMES, minatar
from tremble.worlds.nchain import NChain
from tremble.worlds.risky_grid import RiskyGrid

NCHAIN_ID = "tremble/NChain-v0"
MINATAR_IDS = {game: f"tremble/MinAtar-{game.title().replace('_', '')}-v0" for game in GAMES}
"""The names under which Gymnasium makes the same games."""


def _register() -> None:
    envs: dict[str, Callable[..., JaxEnv]] = {
        "nchain": NChain,
        "deepsea": DeepSea,
        "deepsea-stochastic": partial(DeepSea, stochastic=True),
        "risky-grid": RiskyGrid,
        "probe-constant": probes.ConstantReward,
        "probe-observation": probes.ObservationValue,
        "probe-discounting": probes.Discounting,
        "probe-action": probes.ActionChoice,
        "probe-joint": probes.JointPolicy,
        "probe-two-point": probes.TwoPointReward,
        "probe-truncation": probes.TruncationOnly,
        **{f"minatar/{game}": partial(minatar, game) for game in GAMES},
    }
    for name, make in envs.items():
        register_jax_env(name, make)
    gymnasium.register(NCHAIN_ID, entry_point="tremble.worlds.nchain_gym:NChainEnv")
    for game, name in MINATAR_IDS.items():
        gymnasium.register(name, entry_point="tremble.worlds.minatar_gym:make_minatar", kwargs={"game": game})
    hyperparameters.register()


_register()

__all__ = ["DeepSea", "NChain", "RiskyGrid", "minatar"]
