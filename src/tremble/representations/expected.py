"""One value per action: the expected return, as in DQN."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
from jaxtyping import Array, Float

from tremble.dist import ReturnDist
from tremble.losses import huber
from tremble.representations.base import OutputRepresentation
from tremble.settings import NON_NEGATIVE


class Expected(OutputRepresentation):
    """A single atom, trained by the Huber loss of the temporal difference (its gradient is clipped to +-kappa)."""

    kappa: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=1.0)
    """Threshold of the Huber loss: quadratic below, linear above."""

    @property
    def n_outputs(self) -> int:
        """One value."""
        return 1

    def from_outputs(self, outputs: Float[Array, "*batch 1"]) -> ReturnDist:
        """The output is the atom."""
        return ReturnDist(outputs)

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """H_kappa(E[target] - predicted)."""
        return huber(target.mean() - predicted.mean(), self.kappa)
