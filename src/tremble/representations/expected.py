"""One value per action: the expected return, as in DQN."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Use
from tremble.dist import ReturnDist
from tremble.losses import huber
from tremble.networks import Head, make_head


class Expected(eqx.Module):
    """A single atom, trained by the Huber loss of the temporal difference (its gradient is clipped to +-kappa)."""

    kappa: float = eqx.field(static=True, default=1.0)

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Head:
        """One output per action."""
        return make_head(key, n_features, n_actions, 1, dueling, noisy)

    def predict(
        self,
        head: Head,
        features: Float[Array, "features"],
        use: Use = "choose",
        level_key: PRNGKeyArray | None = None,
        layer_key: PRNGKeyArray | None = None,
    ) -> ReturnDist:
        """``atoms[actions, 1]``."""
        return ReturnDist(head(features, layer_key))

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """H_kappa(E[target] - predicted)."""
        return huber(target.mean() - predicted.mean(), self.kappa)
