"""Environments: written in JAX for compiled training, and registered with Gymnasium."""

from __future__ import annotations

from collections.abc import Callable

from tremble.core import JaxEnv
from tremble.envs.chain import NChain
from tremble.envs.registration import register

JAX_ENVS: dict[str, Callable[..., JaxEnv]] = {"nchain": NChain}
"""Constructors by name; keyword arguments are the fields of the environment."""

register()

__all__ = ["JAX_ENVS", "NChain", "register"]
