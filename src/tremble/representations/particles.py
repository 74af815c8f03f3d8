"""Particles without levels, trained by maximum mean discrepancy, as in MMDQN."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from tremble.dist import ReturnDist
from tremble.losses import squared_mmd
from tremble.representations.base import OutputRepresentation
from tremble.settings import SIZE


class Particles(OutputRepresentation):
    """N atoms of mass 1/N in no order, trained by the squared maximum mean discrepancy to the target.

    Criteria that read levels should sort them first (``order = "sorted"``).
    """

    n_particles: Annotated[int, SIZE] = eqx.field(static=True, default=200)
    """Atoms of an action."""

    @property
    def n_outputs(self) -> int:
        """One output per particle."""
        return self.n_particles

    def from_outputs(self, outputs: Float[Array, "*batch n"]) -> ReturnDist:
        """The outputs are the particles."""
        return ReturnDist(outputs)

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """MMD^2 of the two sets of particles."""
        return jax.vmap(lambda p, t: squared_mmd(p.atoms, t.atoms))(predicted, target)
