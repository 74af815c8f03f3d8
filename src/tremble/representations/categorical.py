"""Probabilities on a fixed support, as in C51."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Use
from tremble.dist import ReturnDist
from tremble.losses import categorical_cross_entropy, project, share_outside
from tremble.networks import Head, make_head


class Categorical(eqx.Module):
    """Atoms z_i at equal distances in [v_min, v_max] with learned masses p_i, trained by cross-entropy against the
    target projected onto them.

    The support must cover the returns: what falls outside is moved to its ends, and ``clipped_mass`` in the metrics
    says how much of the targets that was.
    """

    actions_apart: ClassVar[bool] = True
    v_min: float = eqx.field(static=True, default=-10.0)
    v_max: float = eqx.field(static=True, default=10.0)
    n_atoms: int = eqx.field(static=True, default=51)

    def __check_init__(self) -> None:
        """A support has a width and at least two atoms."""
        if not self.v_min < self.v_max or self.n_atoms < 2:
            raise ValueError(
                f"a support needs v_min < v_max and two atoms; got {self.v_min}, {self.v_max}, {self.n_atoms}"
            )

    @property
    def support(self) -> Float[Array, "atoms"]:
        """z_i."""
        return jnp.linspace(self.v_min, self.v_max, self.n_atoms)

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Head:
        """A logit per action and atom."""
        return make_head(key, n_features, n_actions, self.n_atoms, dueling, noisy)

    def predict(
        self,
        head: Head,
        features: Float[Array, "features"],
        use: Use = "choose",
        level_key: PRNGKeyArray | None = None,
        layer_key: PRNGKeyArray | None = None,
    ) -> ReturnDist:
        """``weights[actions, atoms] = softmax of the logits``, on the same atoms for every action."""
        weights = jax.nn.softmax(head(features, layer_key), -1)
        return ReturnDist(jnp.broadcast_to(self.support, weights.shape), weights)

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """-sum_i m_i log p_i, m the projected target."""
        return categorical_cross_entropy(predicted.weights, project(target.atoms, target.weights, self.support))

    def report(self, predicted: ReturnDist, target: ReturnDist) -> dict[str, Float[Array, ""]]:
        """Mass of the target beyond the support."""
        return {"clipped_mass": share_outside(target.atoms, target.weights, self.v_min, self.v_max)}
