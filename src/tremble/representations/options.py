"""QUOTA: options that act by a part of the return's quantiles, and a value for each of them.

Option j of M looks at the levels between j/M and (j + 1)/M only: the first ones are pessimists, the last optimists. One
option is in force at a time. It ends with the episode, and at every other step with probability beta; the next one
is random with probability epsilon_Omega, else the one of the highest value Q_Omega(s).
"""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from tremble import schedules
from tremble.core import Clock, Scalar, Transition
from tremble.dist import ReturnDist
from tremble.networks import Head, Network
from tremble.representations.base import DETERMINISTIC, ActContext, Query, Representation
from tremble.representations.quantile import Quantile
from tremble.settings import NON_NEGATIVE, SHARE, SIZE


class OptionHead(eqx.Module):
    """Quantiles of every action, and a value of every option, from the same features."""

    quantiles: Head
    options: eqx.nn.Linear


class OptionNoise(eqx.Module):
    """The random numbers of one step."""

    end: Float[Array, "*batch"]
    """Uniform; below beta the option ends."""
    explore: Float[Array, "*batch"]
    """Uniform; below epsilon_Omega the next option is random."""
    option: Int[Array, "*batch"]
    """That random option."""


def windows(n_options: int, n_quantiles: int) -> Float[np.ndarray, "M N"]:
    """Weights of the quantiles in each option's score, rows summing to 1: its mean over the levels j/M to (j + 1)/M.

    Quantile i stands for the levels i/N to (i + 1)/N; where M divides N a row is N/M equal weights in a row, as
    published, else a quantile at the border counts with the share that lies inside.
    """
    low, high = np.arange(n_options)[:, None] / n_options, np.arange(1, n_options + 1)[:, None] / n_options
    left, right = np.arange(n_quantiles) / n_quantiles, np.arange(1, n_quantiles + 1) / n_quantiles
    inside = np.clip(np.minimum(high, right) - np.maximum(low, left), 0.0, None)
    return (inside / inside.sum(1, keepdims=True)).astype(np.float32)


def option_target(
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    values: Float[Array, "M"],
    option: Int[Array, ""],
    beta: Scalar,
) -> Float[Array, ""]:
    """y = r + discount [beta max_o Q^-(s', o) + (1 - beta) Q^-(s', option)]: at s' the option ends, or it goes on."""
    return reward + discount * (beta * values.max() + (1.0 - beta) * values[option])


class QuantileOptions(Representation):
    """QR-DQN with options: quantiles learn as ever, by the best action of the full mean; the options' values learn by

        1/2 (y - Q_Omega(s, option))^2,    y as in `option_target`, from the delayed parameters,

    added to the quantile loss. Acting is by the mean of the quantiles in the window of the option in force.
    """

    quantiles: Quantile = Quantile()
    """What the returns are predicted by."""
    n_options: Annotated[int, SIZE] = eqx.field(static=True, default=10)
    """Options, each of which acts by a part of the quantiles."""
    option_beta: Annotated[Scalar, SHARE] = 0.01
    """Probability that an option ends at a step."""
    option_epsilon_start: Annotated[Scalar, SHARE] = 1.0
    """Probability that the next option is a random one, at first."""
    option_epsilon_end: Annotated[Scalar, SHARE] = 0.0
    """Probability of a random option in the end."""
    option_epsilon_decay_steps: Annotated[Scalar, NON_NEGATIVE] = 4e7
    """Transitions over which it falls in a straight line; published as the whole run."""

    def init_head(
        self, key: PRNGKeyArray, n_features: int, n_actions: int, dueling: bool = False, noisy: bool = False
    ) -> OptionHead:
        """A head of quantiles, and a linear layer for the options."""
        quantile_key, option_key = jax.random.split(key)
        return OptionHead(
            self.quantiles.init_head(quantile_key, n_features, n_actions, dueling, noisy),
            eqx.nn.Linear(n_features, self.n_options, key=option_key),
        )

    def predict(
        self, head: OptionHead, features: Float[Array, "batch features"], query: Query = DETERMINISTIC
    ) -> ReturnDist:
        """``atoms[batch, actions, N]``, as QR-DQN."""
        return self.quantiles.predict(head.quantiles, features, query)

    def loss(self, predicted: ReturnDist, target: ReturnDist, extra: Any = None) -> Float[Array, "batch"]:
        """The quantile Huber loss, as QR-DQN."""
        return self.quantiles.loss(predicted, target)

    def auxiliary_loss(
        self, params: Network, target_params: Network, batch: Transition, predicted: ReturnDist, query: Query
    ) -> Float[Array, "batch"]:
        """The loss of the option in force, times the sample's importance weight."""

        def one(features: Array, next_features: Array, transition: Transition) -> Float[Array, ""]:
            option = transition.extra
            values = target_params.head.options(next_features)
            y = option_target(transition.reward_t, transition.discount_t, values, option, self.option_beta)
            value = params.head.options(features)[option]
            assert transition.weight is not None, "samplers set the weight"
            return transition.weight * 0.5 * (jax.lax.stop_gradient(y) - value) ** 2

        return jax.vmap(one)(params.features(batch.obs_tm1), target_params.features(batch.obs_t), batch)

    def option_epsilon(self, clock: Clock) -> Float[Array, ""]:
        """epsilon_Omega now."""
        t = clock.time("transitions")
        return schedules.linear(t, self.option_epsilon_start, self.option_epsilon_end, self.option_epsilon_decay_steps)

    def init_memory(self) -> Int[Array, ""]:
        """An option; never acted by, because every episode starts with a new one."""
        return jnp.zeros((), jnp.int32)

    def draw_behaviour(self, key: PRNGKeyArray) -> OptionNoise:
        """What decides whether the option ends, and which one may follow."""
        number_key, option_key = jax.random.split(key)
        end, explore = jax.random.uniform(number_key, (2,))
        return OptionNoise(end, explore, jax.random.randint(option_key, (), 0, self.n_options, jnp.int32))

    def behave(self, context: ActContext) -> tuple[Float[Array, "actions"], Int[Array, ""]]:
        """The mean of the quantiles in the window of the option in force; and that option."""
        noise: OptionNoise = context.noise
        best = jnp.argmax(context.head.options(context.features)).astype(jnp.int32)
        following = jnp.where(noise.explore < self.option_epsilon(context.clock), noise.option, best)
        ends = context.episode_start | (noise.end < self.option_beta)
        option = jnp.where(ends, following, context.memory)
        dist = context.dist
        return dist.atoms @ jnp.asarray(windows(self.n_options, dist.n_atoms))[option], option

    def behaviour_metrics(self, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Probability that the next option is random."""
        return {"option_epsilon": self.option_epsilon(clock)}
