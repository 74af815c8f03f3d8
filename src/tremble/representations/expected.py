"""One value per action: the expected return, as in DQN."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.dist import ReturnDist
from tremble.losses import huber
from tremble.networks import Head, make_head


class Expected(eqx.Module):
    """A single atom, trained by the Huber loss of the temporal difference (its gradient is clipped to +-kappa)."""

    kappa: float = eqx.field(static=True, default=1.0)

    @property
    def n_atoms(self) -> int:
        """One atom."""
        return 1

    def init_head(self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False) -> Head:
        """One output per action."""
        return make_head(key, n_features, n_actions, 1, dueling)

    def predict(
        self,
        head: Head,
        features: Float[Array, "features"],
        key: PRNGKeyArray | None = None,
        levels: Any = None,
    ) -> ReturnDist:
        """``atoms[actions, 1]``."""
        return ReturnDist(head(features))

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """H_kappa(E[target] - predicted)."""
        return huber(target.mean() - predicted.mean(), self.kappa)
