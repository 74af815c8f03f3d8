"""Fixed, equally spaced quantile levels, as in QR-DQN."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.dist import ReturnDist
from tremble.losses import quantile_huber
from tremble.networks import Head, make_head


class Quantile(eqx.Module):
    """N atoms of mass 1/N at the levels tau_hat_i = (i - 1/2)/N, trained by the quantile Huber loss."""

    n_quantiles: int = eqx.field(static=True, default=200)
    kappa: float = eqx.field(static=True, default=1.0)
    """Where the loss turns from quadratic to linear; 0 is plain quantile regression."""

    @property
    def n_atoms(self) -> int:
        """N."""
        return self.n_quantiles

    def init_head(self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False) -> Head:
        """N outputs per action."""
        return make_head(key, n_features, n_actions, self.n_quantiles, dueling)

    def predict(
        self,
        head: Head,
        features: Float[Array, "features"],
        key: PRNGKeyArray | None = None,
        levels: Any = None,
    ) -> ReturnDist:
        """``atoms[actions, N]``; nothing keeps them in order but the loss."""
        return ReturnDist(head(features))

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """sum_i mean_j rho_{tau_hat_i}(target_j - predicted_i)."""
        return quantile_huber(predicted.atoms, target.atoms, predicted.levels, self.kappa)
