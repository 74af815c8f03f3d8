"""A quantile function that cannot decrease, and a bonus for what has not been seen, as in NDQFN."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Clock, Scalar, Transition, Use, split_key
from tremble.dist import ReturnDist
from tremble.networks import (
    Head,
    Network,
    NoisyLinear,
    batch_linear,
    batch_outputs,
    embed_levels,
    linear,
    make_head,
)
from tremble.representations.base import DETERMINISTIC, ActContext, Query, Representation
from tremble.representations.implicit import draw_levels, midpoints
from tremble.representations.quantile import quantile_losses
from tremble.schedules import Schedule
from tremble.settings import NON_NEGATIVE, SIZE, Range


def grid(n: int) -> Float[np.ndarray, "n_plus_1"]:
    """p_0 = 0.001, p_i = i/n, p_n = 0.999."""
    points = np.arange(n + 1) / n
    points[[0, -1]] = 0.001, 0.999
    return points.astype(np.float32)


def ramps(levels: Float[Array, "*batch m"], n: int) -> Float[Array, "*batch n m"]:
    """How much of interval i lies below each level: clip((tau - p_{i-1}) / (p_i - p_{i-1}), 0, 1).

    A start value plus increments times these is linear interpolation between the points of the grid, constant outside.
    """
    points = grid(n)
    return jnp.clip((levels[..., None, :] - points[:-1, None]) / np.diff(points)[:, None], 0.0, 1.0)


class MonotoneHead(eqx.Module):
    """Q(p_0) = baseline(psi), Q(p_i) - Q(p_{i-1}) = softplus(f(psi * phi(p_{i-1}), psi * phi(p_i)) - log N).

    phi is IQN's embedding of a level; f has a hidden layer. With the logarithm an output of zero is an increment of
    about 1/N, so that the spread at the start does not grow with the number of intervals.
    """

    baseline: Head
    embedding: eqx.nn.Linear
    hidden: eqx.nn.Linear | NoisyLinear
    out: Head
    n_intervals: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        n_features: int,
        n_actions: int,
        n_intervals: int,
        n_cosines: int,
        n_hidden: int,
        dueling: bool,
        noisy: bool,
    ):
        """Fresh layers; ``n_hidden`` 0 means as many as features."""
        baseline_key, embedding_key, hidden_key, out_key = jax.random.split(key, 4)
        self.baseline = make_head(baseline_key, n_features, n_actions, 1, dueling, noisy)
        self.embedding = eqx.nn.Linear(n_cosines, n_features, key=embedding_key)
        self.hidden = linear(hidden_key, 2 * n_features, n_hidden or n_features, noisy)
        self.out = make_head(out_key, n_hidden or n_features, n_actions, 1, dueling, noisy)
        self.n_intervals = n_intervals

    def __call__(
        self,
        features: Float[Array, "batch features"],
        levels: Float[Array, "#batch m"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "batch actions m"]:
        """The quantiles of every action at each sample's levels."""
        hidden_key, out_key, baseline_key = split_key(key, 3)
        points = embed_levels(self.embedding, jnp.asarray(grid(self.n_intervals)))
        ends = jnp.concatenate([points[:-1], points[1:]], -1)  # of every interval
        # Features first, then one product: XLA computes a concatenation once, anything else again for every interval.
        pairs = jnp.concatenate([features, features], -1)[:, None] * ends  # [batch, intervals, 2 features]
        hidden = jax.nn.relu(batch_linear(self.hidden, pairs.reshape(-1, pairs.shape[-1]), hidden_key))
        outputs = batch_outputs(self.out, hidden, out_key)[:, :, 0]
        increments = jax.nn.softplus(outputs - np.log(self.n_intervals)).reshape(*pairs.shape[:2], -1)
        baseline = batch_outputs(self.baseline, features, baseline_key)
        return baseline + increments.transpose(0, 2, 1) @ ramps(levels, self.n_intervals)


class Heads(eqx.Module):
    """The quantile function that is learned; and, for the bonus, one that stays as drawn and one that imitates it."""

    quantiles: MonotoneHead
    imitator: MonotoneHead | None
    frozen: MonotoneHead | None


class NonDecreasing(Representation):
    """Z at levels tau ~ U(0, 1), from a quantile function that is monotone by construction, trained as IQN is.

    The bonus (DPE, distributional prediction error): a random network gives a quantile function F(s, a) too, another
    network of the same kind learns to imitate it on what is done, and where it fails little has been done yet:

        score(s, a) = criterion's score + c_t W(imitator(s, a), F(s, a)),    c_t = c sqrt(log t / t).

    Both have a torso of their own. The bonus is for acting; targets are without it.
    """

    random_levels = True
    n_intervals: Annotated[int, Range(2)] = eqx.field(static=True, default=32)
    """N: intervals between levels, on each of which the quantile function is linear."""
    n_online: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Levels of the prediction that is trained."""
    n_target: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Levels of the target."""
    kappa: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=1.0)
    """Threshold of the Huber loss: quadratic below, linear above."""
    n_cosines: Annotated[int, SIZE] = eqx.field(static=True, default=64)
    """Cosines that a level is embedded by."""
    n_hidden: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Width of the hidden layer behind the product; 0 means as wide as the features."""
    bonus: Literal["w1", "w2", "none"] = eqx.field(static=True, default="w1")
    """The distance that measures the imitator's error; ``none`` leaves both networks out."""
    c: Annotated[Scalar, NON_NEGATIVE] = 50.0
    """Coefficient of the bonus."""
    schedule: Schedule = Schedule("sqrt_log")
    """How c_t shrinks."""

    @property
    def n_torsos(self) -> int:
        """One each for the return, the imitator, and what is imitated."""
        return 1 if self.bonus == "none" else 3

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> Heads:
        """One, or three, quantile functions."""

        def draw(key: PRNGKeyArray, noisy: bool) -> MonotoneHead:
            return MonotoneHead(
                key, n_features, n_actions, self.n_intervals, self.n_cosines, self.n_hidden, dueling, noisy
            )

        if self.bonus == "none":
            return Heads(draw(key, noisy), None, None)
        keys = jax.random.split(key, 3)
        return Heads(draw(keys[0], noisy), draw(keys[1], False), draw(keys[2], False))

    def levels(self, use: Use, key: PRNGKeyArray | None, batch: int) -> Float[Array, "#batch n"]:
        """Random to learn from; to choose an action evenly spaced ones, about the middles of the intervals."""
        if use == "choose":
            return midpoints(self.n_intervals)[None]
        n = self.n_target if use == "target" else self.n_online
        return midpoints(n)[None] if key is None else draw_levels(key, batch, n, use)

    def predict(
        self, head: Heads, features: Float[Array, "batch features"], query: Query = DETERMINISTIC
    ) -> ReturnDist:
        """``atoms[batch, actions, n]`` of equal mass, at ``levels[batch, n]``, never decreasing in the level."""
        levels = self.levels(query.use, query.level_key, features.shape[0])
        own = jnp.split(features, self.n_torsos, -1)[0]
        return ReturnDist(head.quantiles(own, levels, query.layer_key), levels=levels[:, None])

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """sum_i mean_j rho_{tau_i}(target_j - predicted_i)."""
        return quantile_losses(predicted, target, self.kappa)

    def error(self, head: Heads, features: Float[Array, "batch features"]) -> Float[Array, "batch actions n"]:
        """Imitator minus imitated, at the middles of the intervals; only the imitator has a gradient."""
        _, seen, frozen = jnp.split(features, 3, -1)
        assert head.imitator is not None and head.frozen is not None
        levels = midpoints(self.n_intervals)[None]
        return head.imitator(seen, levels) - jax.lax.stop_gradient(head.frozen(frozen, levels))

    def surprise(self, head: Heads, features: Float[Array, "batch features"]) -> Float[Array, "batch actions"]:
        """W_p of the two: both increase, so that it is the mean over levels of |difference|^p, to the power 1/p."""
        error = self.error(head, features)
        return jnp.abs(error).mean(-1) if self.bonus == "w1" else jnp.sqrt((error**2).mean(-1))

    def auxiliary_loss(
        self, params: Network, target_params: Network, batch: Transition, predicted: ReturnDist, query: Query
    ) -> Float[Array, "batch"]:
        """W_2^2 of imitator and imitated at the action taken: smooth, with the minimum of W_1."""
        if self.bonus == "none":
            return jnp.zeros(batch.reward_t.shape)
        error = self.error(params.head, params.features(batch.obs_tm1))
        taken = jnp.take_along_axis(error, batch.action_tm1[:, None, None], 1)[:, 0]
        return (taken**2).mean(-1)

    def coefficient(self, clock: Clock) -> Float[Array, ""]:
        """c_t."""
        return self.schedule(self.c, clock)

    def behave(self, context: ActContext) -> tuple[Float[Array, "actions"], Any]:
        """The criterion's scores plus the bonus."""
        if self.bonus == "none":
            return context.scores, context.memory
        bonus = self.surprise(context.head, context.features[None])[0]
        return context.scores + self.coefficient(context.clock) * bonus, context.memory

    def behaviour_metrics(self, clock: Clock) -> dict[str, Float[Array, ""]]:
        """The coefficient of the bonus."""
        return {} if self.bonus == "none" else {"bonus_coefficient": self.coefficient(clock)}
