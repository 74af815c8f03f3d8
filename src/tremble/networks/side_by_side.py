"""Several torsos of one kind that see the same observation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from tremble.networks.conv import ConvSpec, ConvTorso
from tremble.networks.torsos import Mlp, MlpSpec


class SideBySide(eqx.Module):
    """The features of all torsos, one after another: a representation that asked for several knows which is which.

    None of them is special here. What is to stay as it was drawn is kept so by the representation, which stops the
    gradient at those features.
    """

    torsos: tuple[Mlp | ConvTorso, ...]

    def __call__(self, obs: Shaped[Array, "*obs"]) -> Float[Array, "features"]:
        """Features of one observation."""
        return jnp.concatenate([torso(obs) for torso in self.torsos])


def side_by_side(
    spec: MlpSpec | ConvSpec, key: PRNGKeyArray, obs_shape: tuple[int, ...], n: int
) -> tuple[SideBySide, int]:
    """``n`` torsos, each drawn on its own, and how many features *one* of them gives."""
    made = [spec.init(k, obs_shape) for k in jax.random.split(key, n)]
    return SideBySide(tuple(torso for torso, _ in made)), made[0][1]
