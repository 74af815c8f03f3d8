"""From features to outputs per action."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.networks.noisy import NoisyLinear, linear


class Plain(eqx.Module):
    """One linear layer: ``outputs[actions, n]``."""

    linear: eqx.nn.Linear | NoisyLinear
    n_outputs: int = eqx.field(static=True)

    def __call__(
        self, features: Float[Array, "features"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "actions n"]:
        """Outputs of every action."""
        return self.linear(features, key=key).reshape(-1, self.n_outputs)


class Dueling(eqx.Module):
    """A value shared by all actions plus centred advantages, output by output:

    outputs_{a,i} = value_i + advantage_{a,i} - mean_b advantage_{b,i}.

    For a distribution the i-th output is its i-th atom (or logit), so the mean over actions is taken atom by atom. The
    centring fixes the sum over actions, not each distribution: the atoms of an action are still free.
    """

    value: eqx.nn.Linear | NoisyLinear
    advantage: eqx.nn.Linear | NoisyLinear

    def __call__(
        self, features: Float[Array, "features"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "actions n"]:
        """Outputs of every action."""
        value_key, advantage_key = (None, None) if key is None else jax.random.split(key)
        value = self.value(features, key=value_key)
        advantage = self.advantage(features, key=advantage_key).reshape(-1, value.shape[0])
        return value + advantage - advantage.mean(0)


Head = Plain | Dueling


def make_head(
    key: PRNGKeyArray, n_features: int, n_actions: int, n_outputs: int, dueling: bool, noisy: bool = False
) -> Head:
    """A fresh head."""
    if not dueling:
        return Plain(linear(key, n_features, n_actions * n_outputs, noisy), n_outputs)
    value_key, advantage_key = jax.random.split(key)
    return Dueling(
        linear(value_key, n_features, n_outputs, noisy),
        linear(advantage_key, n_features, n_actions * n_outputs, noisy),
    )
