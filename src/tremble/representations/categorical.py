"""Probabilities on a fixed support, as in C51."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.dist import ReturnDist
from tremble.losses import categorical_cross_entropy, project, share_outside
from tremble.representations.base import OutputRepresentation
from tremble.settings import Range, SettingsError


class Categorical(OutputRepresentation):
    """Atoms z_i at equal distances in [v_min, v_max] with learned probabilities p_i = softmax of the outputs.

    Trained by cross-entropy against the target projected onto the support. The support must cover the returns: what
    falls outside is moved to its ends, and ``clipped_mass`` in the metrics is the share of the targets' mass there.
    """

    v_min: float = eqx.field(static=True, default=-10.0)
    """The lowest atom; returns below it are counted there."""
    v_max: float = eqx.field(static=True, default=10.0)
    """The highest atom; returns above it are counted there."""
    n_atoms: Annotated[int, Range(2)] = eqx.field(static=True, default=51)
    """Atoms, from the lowest to the highest at equal distances."""

    def __check_init__(self) -> None:
        """Validate fields."""
        if not self.v_min < self.v_max:
            raise SettingsError(f"v_min must be below v_max; got {self.v_min} and {self.v_max}")

    @property
    def support(self) -> Float[Array, "atoms"]:
        """z_i."""
        return jnp.linspace(self.v_min, self.v_max, self.n_atoms)

    @property
    def n_outputs(self) -> int:
        """A logit per atom."""
        return self.n_atoms

    def from_outputs(self, outputs: Float[Array, "*batch atoms"]) -> ReturnDist:
        """The same atoms for every action, with the softmax of the outputs as weights."""
        weights = jax.nn.softmax(outputs, -1)
        return ReturnDist(jnp.broadcast_to(self.support, weights.shape), weights)

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """-sum_i m_i log p_i, m the projected target."""

        def one(predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
            return categorical_cross_entropy(predicted.weights, project(target.atoms, target.weights, self.support))

        return jax.vmap(one)(predicted, target)

    def metrics(self, predicted: ReturnDist, target: ReturnDist) -> dict[str, Float[Array, "batch"]]:
        """Mass of the target outside the support."""
        outside = jax.vmap(lambda t: share_outside(t.atoms, t.weights, self.v_min, self.v_max))(target)
        return {"clipped_mass": outside}
