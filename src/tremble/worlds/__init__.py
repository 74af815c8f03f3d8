"""Environments of this package, written in JAX: N-Chain, Deep Sea, the risky grid, MinAtar, and probes.

Importing this package registers their names; the environments themselves, and with them JAX, are imported on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tremble.envs.registry import register_gymnasium_env, register_jax_env
from tremble.hyperparameters import register_hyperparameters

NCHAIN_ID = "tremble/NChain-v0"
MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
MINATAR_IDS = {game: f"tremble/MinAtar-{game.title().replace('_', '')}-v0" for game in MINATAR_GAMES}
"""Gymnasium ids of the same games."""
GAME_LINES = {
    "asterix": "collect gold and avoid enemies, which become faster and more",
    "breakout": "break bricks with a ball and a paddle; rows come back when all are gone",
    "freeway": "cross a road of cars with different speeds, as often as time allows",
    "seaquest": "save divers, shoot fish and submarines, and surface before the oxygen is gone",
    "space_invaders": "shoot aliens that march, shoot back, and become faster",
}


@dataclass(frozen=True)
class World:
    """An environment of this package: ``module:name`` of what makes it, a line about it, keyword arguments."""

    make: str
    about: str
    settings: dict[str, Any] = field(default_factory=dict)


_PROBES = "tremble.worlds.probes"
JAX_ENVS: dict[str, World] = {
    "nchain": World("tremble.worlds.nchain:NChain", "the paper's chain: a safe end, better by one, and a risky one"),
    "deepsea": World("tremble.worlds.deep_sea:DeepSea", "one sequence of N actions out of 2^N finds the reward"),
    "deepsea-stochastic": World(
        "tremble.worlds.deep_sea:DeepSea", "the same with wind and noisy rewards", {"stochastic": True}
    ),
    "risky-grid": World(
        "tremble.worlds.risky_grid:RiskyGrid", "a short path with gambles of positive mean, and a long safe one"
    ),
    "probe-constant": World(f"{_PROBES}:ConstantReward", "one state, one step, reward 1: is the loss right?"),
    "probe-observation": World(f"{_PROBES}:ObservationValue", "the observation is the reward: is it used?"),
    "probe-discounting": World(f"{_PROBES}:Discounting", "reward 1 at the second step: is the discount right?"),
    "probe-action": World(f"{_PROBES}:ActionChoice", "two actions that pay -1 and +1: are actions mixed up?"),
    "probe-joint": World(f"{_PROBES}:JointPolicy", "the best action follows from the observation: do samples fit?"),
    "probe-two-point": World(f"{_PROBES}:TwoPointReward", "0 or 2, or surely 1: is the distribution learned?"),
    "probe-truncation": World(f"{_PROBES}:TruncationOnly", "reward 1 for ever, cut off by time: does a cut bootstrap?"),
    **{
        f"minatar/{game}": World("tremble.worlds.minatar:minatar", GAME_LINES[game], {"game": game})
        for game in MINATAR_GAMES
    },
}
"""By name; importing this package registers them."""


def _is_nchain(env: str) -> bool:
    return env.lower().rsplit("/", 1)[-1].startswith("nchain")


def _is_minatar(env: str) -> bool:
    return env.lower().startswith("minatar/") or env.lower().rsplit("/", 1)[-1].startswith("minatar")


def _register() -> None:
    for name, world in JAX_ENVS.items():
        register_jax_env(name, world.make, world.about, **world.settings)
    tables = "tremble.worlds.hyperparameters"
    register_hyperparameters("nchain", f"{tables}:NCHAIN", _is_nchain, "the paper's, for N-Chain")
    register_hyperparameters("minatar", f"{tables}:MINATAR_GAMES", _is_minatar, "ours, from the MinAtar paper")
    register_gymnasium_env(NCHAIN_ID, "tremble.worlds.nchain_gym:NChainEnv")
    for game, name in MINATAR_IDS.items():
        register_gymnasium_env(name, "tremble.worlds.minatar:minatar_gym", kwargs={"game": game})


_register()
