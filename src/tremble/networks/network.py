"""A network is a torso and a head. Some agents need several torsos that see the same observation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from tremble.networks.conv import ConvSpec, ConvTorso
from tremble.networks.torsos import Mlp, MlpSpec


class SideBySide(eqx.Module):
    """Several torsos of one kind; their features are concatenated.

    A representation that asks for several knows which features are whose, and stops the gradient where a torso must
    stay as it was initialised.
    """

    torsos: tuple[Mlp | ConvTorso, ...]

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, "features"]:
        """Features of one observation."""
        return jnp.concatenate([torso(obs) for torso in self.torsos])


Torso = Mlp | ConvTorso | SideBySide


class Network(eqx.Module):
    """All parameters: ``features = torso(obs)``, then the head, whose outputs the representation reads."""

    torso: Torso
    head: PyTree

    def features(self, obs: Shaped[Array, "batch *obs"]) -> Float[Array, "batch features"]:
        """Features of a batch of observations."""
        return jax.vmap(self.torso)(obs)


def init_torso(
    spec: MlpSpec | ConvSpec, key: PRNGKeyArray, obs_shape: tuple[int, ...], n_torsos: int
) -> tuple[Torso, int]:
    """One or several torsos, each with its own initialisation, and the number of features that *one* of them gives."""
    if n_torsos == 1:
        return spec.init(key, obs_shape)
    made = [spec.init(k, obs_shape) for k in jax.random.split(key, n_torsos)]
    return SideBySide(tuple(torso for torso, _ in made)), made[0][1]
