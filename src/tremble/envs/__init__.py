"""Environments: written in JAX for compiled training, and registered with Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tremble.core import JaxEnv
from tremble.envs import probes
from tremble.envs.chain import NChain
from tremble.envs.deep_sea import DeepSea
from tremble.envs.jax_gym import JaxGymEnv
from tremble.envs.minatar import GAMES, minatar
from tremble.envs.registration import register
from tremble.envs.risky_grid import RiskyGrid

JAX_ENVS: dict[str, Callable[..., JaxEnv]] = {
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
"""Constructors by name; keyword arguments are the fields of the environment."""

register()

__all__ = ["JAX_ENVS", "DeepSea", "JaxGymEnv", "NChain", "RiskyGrid", "register"]
