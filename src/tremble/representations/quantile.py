"""Fixed, equally spaced quantile levels, as in QR-DQN."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Use
from tremble.dist import ReturnDist
from tremble.losses import quantile_huber
from tremble.networks import Head, make_head


class Quantile(eqx.Module):
    """N atoms of mass 1/N at the levels tau_hat_i = (i - 1/2)/N, trained by the quantile Huber loss."""

    actions_apart: ClassVar[bool] = True
    n_quantiles: int = eqx.field(static=True, default=200)
    kappa: float = eqx.field(static=True, default=1.0)
    """Where the loss turns from quadratic to linear; 0 is plain quantile regression."""
    monotone: bool = eqx.field(static=True, default=False)
    """Quantiles that cannot cross: a lowest one plus non-negative increments."""

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Head:
        """N outputs per action."""
        return make_head(key, n_features, n_actions, self.n_quantiles, dueling, noisy)

    def predict(
        self,
        head: Head,
        features: Float[Array, "features"],
        use: Use = "choose",
        level_key: PRNGKeyArray | None = None,
        layer_key: PRNGKeyArray | None = None,
    ) -> ReturnDist:
        """``atoms[actions, N]``; unless ``monotone``, nothing keeps them in order but the loss."""
        outputs = head(features, layer_key)
        return ReturnDist(increasing(outputs) if self.monotone else outputs)

    def divergence(self, predicted: ReturnDist, target: ReturnDist) -> Float[Array, ""]:
        """sum_i mean_j rho_{tau_hat_i}(target_j - predicted_i)."""
        return quantile_huber(predicted.atoms, target.atoms, predicted.levels, self.kappa)


def increasing(outputs: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """y_1 = x_1 - sum_k s_k / 2 and y_i = y_{i-1} + s_i with s_i = softplus(x_i) / n, centred so that n outputs of zero
    are a distribution around zero. Divided by n, because otherwise the spread at the start would grow with n.
    """
    n = outputs.shape[-1]
    steps = jax.nn.softplus(outputs[..., 1:]) / n
    rise = jnp.concatenate([jnp.zeros_like(outputs[..., :1]), jnp.cumsum(steps, -1)], -1)
    return outputs[..., :1] + rise - rise[..., -1:] / 2
