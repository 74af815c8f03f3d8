"""A network is a torso and a head. Some agents need several torsos that see the same observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from tremble.networks.conv import ConvSpec
from tremble.networks.initialisation import initialise
from tremble.networks.own import NetworkSpec, own_torso
from tremble.networks.pictures import AutoSpec
from tremble.networks.torsos import MlpSpec

Torso = Callable[[Any], Any]
"""A pytree of parameters that is called with one observation ``obs[*obs]`` and returns ``features[features]``."""


class SideBySide(eqx.Module):
    """Several torsos of one kind; their features are concatenated.

    A representation that asks for several knows which features are whose, and stops the gradient where a torso must
    stay as it was initialised.
    """

    torsos: tuple[Torso, ...]

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, "features"]:
        """Features of one observation."""
        return jnp.concatenate([torso(obs) for torso in self.torsos])


class Network(eqx.Module):
    """All parameters: ``features = torso(obs)``, then the head, whose outputs the representation reads."""

    torso: Torso
    head: PyTree

    def features(self, obs: Shaped[Array, "batch *obs"]) -> Float[Array, "batch features"]:
        """Features of a batch of observations."""
        return jax.vmap(self.torso)(obs)


BUILT_IN = (MlpSpec, ConvSpec, AutoSpec)


def init_torso(spec: NetworkSpec, key: PRNGKeyArray, obs_shape: tuple[int, ...], n_torsos: int) -> tuple[Torso, int]:
    """One or several torsos, each with its own initialisation, and the number of features that *one* of them gives."""

    def init(key: PRNGKeyArray) -> tuple[Torso, int]:
        return spec.init(key, obs_shape) if type(spec) in BUILT_IN else own_torso(spec, key, obs_shape)

    if n_torsos == 1:
        return init(key)
    made = [init(k) for k in jax.random.split(key, n_torsos)]
    return SideBySide(tuple(torso for torso, _ in made)), made[0][1]


def started(spec: NetworkSpec, network: Network, key: PRNGKeyArray) -> Network:
    """The network, started by the law that its spec names; a spec of a user's has started its torso itself."""
    return initialise(network, spec.initialisation, key) if isinstance(spec, MlpSpec | ConvSpec) else network
