"""Quantiles at learned levels, as in FQF."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from tremble.core import Scalar, Transition
from tremble.dist import ReturnDist
from tremble.networks import ImplicitHead, Network, batch_linear
from tremble.representations.base import DETERMINISTIC, Query, Representation
from tremble.representations.quantile import quantile_losses
from tremble.settings import NON_NEGATIVE, SIZE


class FractionHead(eqx.Module):
    """A layer that proposes levels, and the network that evaluates them."""

    fractions: eqx.nn.Linear
    quantiles: ImplicitHead

    def edges(self, features: Float[Array, "batch features"]) -> Float[Array, "batch n_plus_1"]:
        """0 = tau_0 < tau_1 < ... < tau_N = 1; its gradient stops at the features."""
        steps = jax.nn.softmax(batch_linear(self.fractions, jax.lax.stop_gradient(features)))
        first, last = jnp.zeros_like(steps[:, :1]), jnp.ones_like(steps[:, :1])
        return jnp.concatenate([first, jnp.cumsum(steps, -1)[:, :-1], last], -1)


class FullyParameterised(Representation):
    """N atoms of mass tau_i - tau_{i-1} at the levels tau_hat_i = (tau_{i-1} + tau_i)/2; the tau are learned per state.

    The quantile network learns by the quantile Huber loss at the proposed levels, as if they were fixed. The proposal
    learns to lower the 1-Wasserstein error of the resulting step function, by the published gradient
    dW1/dtau_i = 2 Z(tau_i) - Z(tau_hat_i) - Z(tau_hat_{i+1}) for the action taken, with an optimiser of its own.
    """

    n_fractions: Annotated[int, SIZE] = eqx.field(static=True, default=32)
    """N: levels, one atom each."""
    kappa: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=1.0)
    """Threshold of the Huber loss: quadratic below, linear above."""
    n_cosines: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Cosines that a level is embedded by."""
    n_hidden: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Width of the layer behind the product; 0 means as wide as the features."""
    fraction_learning_rate: Annotated[Scalar, NON_NEGATIVE] = 2.5e-9
    """Of RMSProp for the fractions; tiny, as published, because moving fractions changes the loss."""

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> FractionHead:
        """Levels start evenly spaced (nearly: small weights, no bias)."""
        fraction_key, quantile_key = jax.random.split(key)
        layer = eqx.nn.Linear(n_features, self.n_fractions, key=fraction_key)
        bound = 0.01 * (6.0 / (n_features + self.n_fractions)) ** 0.5
        weight = jax.random.uniform(fraction_key, layer.weight.shape, minval=-bound, maxval=bound)
        layer = eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, jnp.zeros(self.n_fractions)))
        quantiles = ImplicitHead(quantile_key, n_features, n_actions, self.n_cosines, self.n_hidden, dueling, noisy)
        return FractionHead(layer, quantiles)

    def predict(
        self, head: FractionHead, features: Float[Array, "batch features"], query: Query = DETERMINISTIC
    ) -> ReturnDist:
        """``atoms[batch, actions, N]`` with the proposed masses, which the loss of the quantiles takes as given."""
        edges = jax.lax.stop_gradient(head.edges(features))
        atoms = head.quantiles(features, (edges[:, 1:] + edges[:, :-1]) / 2, query.layer_key)
        return ReturnDist(atoms, jnp.broadcast_to(jnp.diff(edges)[:, None], atoms.shape))

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """sum_i mean_j rho_{tau_hat_i}(target_j - predicted_i): masses do not count, as published."""
        return quantile_losses(predicted, target, self.kappa)

    def auxiliary_loss(
        self, params: Network, target_params: Network, batch: Transition, predicted: ReturnDist, query: Query
    ) -> Float[Array, "batch"]:
        """A number whose gradient in the fractions is dW1/dtau, and zero in everything else.

        Z(tau_hat) is the prediction itself, so only Z(tau) is evaluated.
        """
        features = jax.lax.stop_gradient(params.features(batch.obs_tm1))
        edges = params.head.edges(features)
        inner = jax.lax.stop_gradient(edges[:, 1:-1])
        at_edges = params.head.quantiles(features, inner, query.layer_key)
        at_edges = jnp.take_along_axis(at_edges, batch.action_tm1[:, None, None], 1)[:, 0]
        slope = 2 * at_edges - predicted.atoms[:, 1:] - predicted.atoms[:, :-1]
        return (jax.lax.stop_gradient(slope) * edges[:, 1:-1]).sum(-1)

    def separate_optimiser(self) -> tuple[optax.GradientTransformation, Any]:
        """RMSProp for the layer that proposes fractions."""
        optimiser = optax.rmsprop(self.fraction_learning_rate, decay=0.95, eps=1e-5, initial_scale=0.0)
        return optimiser, _fractions


def _fractions(head: FractionHead) -> PyTree:
    """True for the layer that proposes fractions, false for the rest."""
    marks = jax.tree.map(lambda _: False, head)
    return eqx.tree_at(lambda h: h.fractions, marks, jax.tree.map(lambda _: True, head.fractions))
