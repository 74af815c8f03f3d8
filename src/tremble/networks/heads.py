"""From features to outputs per action."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


class Plain(eqx.Module):
    """One linear layer: ``outputs[actions, n]``."""

    linear: eqx.nn.Linear
    n_outputs: int = eqx.field(static=True)

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "actions n"]:
        """Outputs of every action."""
        return self.linear(features).reshape(-1, self.n_outputs)


class Dueling(eqx.Module):
    """A value shared by all actions plus centred advantages, output by output:

    outputs_{a,i} = value_i + advantage_{a,i} - mean_b advantage_{b,i}.

    For a distribution the i-th output is its i-th atom (or logit), so the mean over actions is taken atom by atom. The
    centring fixes the sum over actions, not each distribution: the atoms of an action are still free.
    """

    value: eqx.nn.Linear
    advantage: eqx.nn.Linear

    def __call__(self, features: Float[Array, "features"]) -> Float[Array, "actions n"]:
        """Outputs of every action."""
        value = self.value(features)
        advantage = self.advantage(features).reshape(-1, value.shape[0])
        return value + advantage - advantage.mean(0)


Head = Plain | Dueling


def make_head(key: PRNGKeyArray, n_features: int, n_actions: int, n_outputs: int, dueling: bool) -> Head:
    """A fresh head."""
    if not dueling:
        return Plain(eqx.nn.Linear(n_features, n_actions * n_outputs, key=key), n_outputs)
    value_key, advantage_key = jax.random.split(key)
    return Dueling(
        eqx.nn.Linear(n_features, n_outputs, key=value_key),
        eqx.nn.Linear(n_features, n_actions * n_outputs, key=advantage_key),
    )
