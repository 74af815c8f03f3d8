"""Fixed, equally spaced quantile levels, as in QR-DQN."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tremble.dist import ReturnDist
from tremble.losses import quantile_huber
from tremble.representations.base import OutputRepresentation
from tremble.settings import NON_NEGATIVE, SIZE


class Quantile(OutputRepresentation):
    """N atoms of mass 1/N at the levels tau_hat_i = (i - 1/2)/N, trained by the quantile Huber loss."""

    n_quantiles: Annotated[int, SIZE] = eqx.field(static=True, default=200)
    """N: atoms of an action."""
    kappa: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=1.0)
    """Where the loss turns from quadratic to linear; 0 is plain quantile regression."""
    monotone: bool = eqx.field(static=True, default=False)
    """Quantiles that cannot cross: a lowest one plus non-negative increments."""

    @property
    def n_outputs(self) -> int:
        """One output per quantile."""
        return self.n_quantiles

    def from_outputs(self, outputs: Float[Array, "*batch n"]) -> ReturnDist:
        """The outputs are the quantiles; unless ``monotone``, only the loss keeps them in order."""
        return ReturnDist(increasing(outputs) if self.monotone else outputs)

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """sum_i mean_j rho_{tau_hat_i}(target_j - predicted_i)."""
        return quantile_losses(predicted, target, self.kappa)


def quantile_losses(predicted: ReturnDist, target: ReturnDist, kappa: float) -> Float[Array, "batch"]:
    """The quantile Huber loss of each sample, at the levels of the prediction."""
    return jax.vmap(lambda p, t: quantile_huber(p.atoms, t.atoms, p.levels, kappa))(predicted, target)


def increasing(outputs: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """y_1 = x_1 - sum_k s_k / 2 and y_i = y_{i-1} + s_i with s_i = softplus(x_i) / n.

    Centred, so that outputs of zero are a distribution around zero; divided by n, because otherwise the initial spread
    would grow with n.
    """
    n = outputs.shape[-1]
    steps = jax.nn.softplus(outputs[..., 1:]) / n
    rise = jnp.concatenate([jnp.zeros_like(outputs[..., :1]), jnp.cumsum(steps, -1)], -1)
    return outputs[..., :1] + rise - rise[..., -1:] / 2
