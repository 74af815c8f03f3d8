"""Environments of this package, written in JAX: N-Chain, Deep Sea, the risky grid, MinAtar, and probes.

Importing this package registers their names; the environments themselves, and with them JAX, are imported on first use.
"""

from __future__ import annotations

from typing import Any

from tremble.envs.registry import register_gymnasium_env, register_jax_env
from tremble.hyperparameters import register_hyperparameters

NCHAIN_ID = "tremble/NChain-v0"
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MINATAR_IDS = {game: f"tremble/MinAtar-{game.title().replace('_', '')}-v0" for game in MINATAR_GAMES}
"""Gymnasium ids of the same games."""
JAX_ENVS: dict[str, tuple[str, dict[str, Any]]] = {
    "nchain": ("tremble.worlds.nchain:NChain", {}),
    "deepsea": ("tremble.worlds.deep_sea:DeepSea", {}),
    "deepsea-stochastic": ("tremble.worlds.deep_sea:DeepSea", {"stochastic": True}),
    "risky-grid": ("tremble.worlds.risky_grid:RiskyGrid", {}),
    "probe-constant": ("tremble.worlds.probes:ConstantReward", {}),
    "probe-observation": ("tremble.worlds.probes:ObservationValue", {}),
    "probe-discounting": ("tremble.worlds.probes:Discounting", {}),
    "probe-action": ("tremble.worlds.probes:ActionChoice", {}),
    "probe-joint": ("tremble.worlds.probes:JointPolicy", {}),
    "probe-two-point": ("tremble.worlds.probes:TwoPointReward", {}),
    "probe-truncation": ("tremble.worlds.probes:TruncationOnly", {}),
    **{f"minatar/{game}": ("tremble.worlds.minatar:minatar", {"game": game}) for game in MINATAR_GAMES},
}
"""What makes each environment: ``module:name`` and its keyword arguments."""


def _is_nchain(env: str) -> bool:
    return env.lower().rsplit("/", 1)[-1].startswith("nchain")


def _is_minatar(env: str) -> bool:
    return env.lower().startswith("minatar/") or env.lower().rsplit("/", 1)[-1].startswith("minatar")


def _register() -> None:
    for name, (make, settings) in JAX_ENVS.items():
        register_jax_env(name, make, **settings)
    register_hyperparameters("nchain", "tremble.worlds.hyperparameters:NCHAIN", _is_nchain)
    register_hyperparameters("minatar", "tremble.worlds.hyperparameters:MINATAR_GAMES", _is_minatar)
    register_gymnasium_env(NCHAIN_ID, "tremble.worlds.nchain_gym:NChainEnv")
    for game, name in MINATAR_IDS.items():
        register_gymnasium_env(name, "tremble.worlds.minatar:minatar_gym", kwargs={"game": game})


_register()
