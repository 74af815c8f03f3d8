"""From features to outputs per action."""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from tremble.core import split_key
from tremble.networks.layers import NoisyLinear, affine, linear
from tremble.networks.taken import outputs_taken, worth_grouping


def batch_outputs(
    head: Head, features: Float[Array, "batch features"], key: PRNGKeyArray | None
) -> Float[Array, "batch actions n"]:
    """Outputs of a batch; a noisy head has the same noise for all samples."""
    return jax.vmap(lambda x: head(x, key))(features)


class Plain(eqx.Module):
    """One linear layer: ``outputs[actions, n]``."""

    linear: eqx.nn.Linear | NoisyLinear
    n_outputs: int = eqx.field(static=True)

    def __call__(
        self, features: Float[Array, "features"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "actions n"]:
        """Outputs of every action."""
        layer = self.linear
        outputs = affine(layer, features) if isinstance(layer, eqx.nn.Linear) else layer(features, key=key)
        return outputs.reshape(-1, self.n_outputs)

    def taken(
        self, features: Float[Array, "batch features"], action: Int[Array, "batch"]
    ) -> Float[Array, "batch n"] | None:
        """Outputs of one action per sample (`networks.taken`); None where computing those of all is no slower."""
        layer = self.linear
        if not isinstance(layer, eqx.nn.Linear) or layer.bias is None:
            return None
        weight = layer.weight.reshape(-1, self.n_outputs, layer.weight.shape[-1])
        if not worth_grouping(action.shape[0], *weight.shape):
            return None
        return outputs_taken(weight, layer.bias.reshape(-1, self.n_outputs), features, action)


class HiddenBranch(eqx.Module):
    """A hidden layer with ReLU and one layer, or a head, behind it."""

    hidden: eqx.nn.Linear | NoisyLinear
    out: eqx.nn.Linear | NoisyLinear | Head

    def __call__(self, x: Float[Array, "in"], *, key: PRNGKeyArray | None = None) -> Float[Array, "..."]:
        """Apply both; of noisy layers each has noise of its own."""
        hidden_key, out_key = split_key(key)
        return self.out(jax.nn.relu(self.hidden(x, key=hidden_key)), key=out_key)


class Dueling(eqx.Module):
    """A value shared by all actions plus centred advantages, output by output:

    outputs_{a,i} = value_i + advantage_{a,i} - mean_b advantage_{b,i}.

    For a distribution the i-th output is its i-th atom (or logit), so the mean over actions is taken atom by atom. The
    centring fixes the sum over actions, not each distribution: the atoms of an action are still free.
    """

    value: eqx.nn.Linear | NoisyLinear | HiddenBranch
    advantage: eqx.nn.Linear | NoisyLinear | HiddenBranch

    def __call__(
        self, features: Float[Array, "features"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "actions n"]:
        """Outputs of every action."""
        value_key, advantage_key = split_key(key)
        value = self.value(features, key=value_key)
        advantage = self.advantage(features, key=advantage_key).reshape(-1, value.shape[0])
        return value + advantage - advantage.mean(0)

    def taken(self, features: Float[Array, "batch features"], action: Int[Array, "batch"]) -> None:
        """None: the centring needs the outputs of all actions."""


Head = Plain | Dueling
T = TypeVar("T", bound=PyTree)


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


def deepen_streams(network: T, width: int, key: PRNGKeyArray) -> T:
    """The network with a hidden layer of ``width`` in both streams of its dueling heads, noisy where the head is."""

    def deepen(layer: eqx.nn.Linear | NoisyLinear, key: PRNGKeyArray) -> HiddenBranch:
        n_outputs, n_inputs = layer.weight.shape
        noisy, (hidden_key, out_key) = isinstance(layer, NoisyLinear), jax.random.split(key)
        return HiddenBranch(linear(hidden_key, n_inputs, width, noisy), linear(out_key, width, n_outputs, noisy))

    def change(part: PyTree, key: PRNGKeyArray) -> PyTree:
        if not isinstance(part, Dueling):
            return part
        assert not isinstance(part.value, HiddenBranch) and not isinstance(part.advantage, HiddenBranch), (
            "deepened already"
        )
        value_key, advantage_key = jax.random.split(key)
        return Dueling(deepen(part.value, value_key), deepen(part.advantage, advantage_key))

    parts, structure = jax.tree.flatten(network, is_leaf=lambda x: isinstance(x, Dueling))
    changed = [change(part, k) for part, k in zip(parts, jax.random.split(key, len(parts)), strict=True)]
    deepened: T = jax.tree.unflatten(structure, changed)
    return deepened
