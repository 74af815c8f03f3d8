"""Probes: environments so small that the return is known exactly, each isolating one thing a learner can get wrong.

A learner that fails one of them says where to look: at its loss, its use of the observation, its discount, its action
bookkeeping, its distribution, or its treatment of time limits. Run them in this order: each needs what came before.
"""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble.core import Noise, Settings
from tremble.settings import COUNT

Observation = Float[Array, "1"]
Outcome = tuple[Any, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]
"""Next state, reward, terminated, truncated."""


class Probe(Settings):
    """What most probes share: two actions, episodes of one step, and a state that is the observation."""

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    @property
    def observation_table(self) -> Float[Array, "states *obs"] | None:
        """Not listed, so that replay stores the observations themselves; some probes do list them."""
        return None

    def reset(self, key: PRNGKeyArray) -> Any:
        """The same state each time."""
        return jnp.ones(1)

    def draw(self, key: PRNGKeyArray) -> Noise:
        """Nothing: most steps are deterministic."""
        return ()

    def step(self, state: Any, action: Int[Array, ""], noise: Noise) -> Outcome:
        """Pay, and end the episode."""
        return state, self.reward(state, action, noise), jnp.asarray(True), jnp.asarray(False)

    def reward(self, state: Any, action: Int[Array, ""], noise: Noise) -> Float[Array, ""]:
        """One, unless the probe is about rewards."""
        return jnp.ones(())

    def observe(self, state: Any) -> Float[Array, "*obs"]:
        """The state itself."""
        return state

    def index(self, state: Any) -> Int[Array, ""]:
        """The only row."""
        return jnp.zeros((), jnp.int32)

    def is_optimal(self, state: Any, action: Int[Array, ""]) -> Bool[Array, ""]:
        """Always: the actions do not differ, unless the probe is about actions."""
        return jnp.asarray(True)


class ConstantReward(Probe):
    """One state, one step, reward 1, so Q = 1. Fails if the loss or the optimiser is wrong."""

    @property
    def observation_table(self) -> Float[Array, "1 1"]:
        """The one observation."""
        return jnp.ones((1, 1))


class ObservationValue(Probe):
    """One step; the observation is +1 or -1 at random and is the reward. Fails if the observation is lost."""

    def reset(self, key: PRNGKeyArray) -> Observation:
        """+1 or -1, equally likely."""
        return _random_sign(key)

    def reward(self, state: Observation, action: Int[Array, ""], noise: Noise) -> Float[Array, ""]:
        """The observation."""
        return state[0]


class Discounting(Probe):
    """Two steps, reward 1 at the second: Q = gamma, then 1. Fails if bootstrapping or the discount is wrong."""

    @property
    def observation_table(self) -> Float[Array, "2 2"]:
        """One unit vector for each step."""
        return jnp.eye(2)

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The first step."""
        return jnp.zeros((), jnp.int32)

    def step(self, state: Int[Array, ""], action: Int[Array, ""], noise: Noise) -> Outcome:
        """On to the second step, which pays and ends the episode."""
        second = state == 1
        return jnp.ones((), jnp.int32), second.astype(jnp.float32), second, jnp.asarray(False)

    def observe(self, state: Int[Array, ""]) -> Float[Array, "2"]:
        """The step's unit vector."""
        return self.observation_table[state]

    def index(self, state: Int[Array, ""]) -> Int[Array, ""]:
        """The step, 0 or 1."""
        return state


class ActionChoice(Probe):
    """One step; action 0 pays -1, action 1 pays +1. Fails if actions are mixed up on their way to the loss."""

    def reward(self, state: Observation, action: Int[Array, ""], noise: Noise) -> Float[Array, ""]:
        """2 action - 1."""
        return 2.0 * action - 1.0

    def is_optimal(self, state: Observation, action: Int[Array, ""]) -> Bool[Array, ""]:
        """Action 1."""
        return action == 1


class JointPolicy(Probe):
    """One step; the observation is +1 or -1 at random, and action 1 pays it, action 0 its opposite.

    Fails if a sample's observation, action and reward do not belong together.
    """

    def reset(self, key: PRNGKeyArray) -> Observation:
        """+1 or -1, equally likely."""
        return _random_sign(key)

    def reward(self, state: Observation, action: Int[Array, ""], noise: Noise) -> Float[Array, ""]:
        """+1 if the action matches the sign, else -1."""
        return jnp.where(self.is_optimal(state, action), 1.0, -1.0)

    def is_optimal(self, state: Observation, action: Int[Array, ""]) -> Bool[Array, ""]:
        """Action 1 at +1, action 0 at -1."""
        return (action == 1) == (state[0] > 0)


class TwoPointReward(Probe):
    """One step; action 0 pays 0 or 2 with probability 1/2 each, action 1 pays 1 surely.

    The means are equal, so only the distribution tells the actions apart. Fails if the learner averages targets.
    """

    @property
    def observation_table(self) -> Float[Array, "1 1"]:
        """The one observation."""
        return jnp.ones((1, 1))

    def draw(self, key: PRNGKeyArray) -> Bool[Array, ""]:
        """A fair coin."""
        return jax.random.bernoulli(key)

    def reward(self, state: Observation, action: Int[Array, ""], noise: Bool[Array, ""]) -> Float[Array, ""]:
        """Twice the coin, or 1."""
        return jnp.where(action == 0, 2.0 * noise, 1.0)


class TruncationOnly(Probe):
    """Reward 1 for ever, cut off every ``time_limit`` steps T: Q = 1/(1 - gamma), because a cut does not end the task.

    A learner that takes the cut for an end gets 1/(1 - gamma (1 - 1/T)) instead: it does not see the clock.
    """

    time_limit: Annotated[int, COUNT] = eqx.field(static=True, default=5)
    """Steps of an episode."""

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """No steps taken."""
        return jnp.zeros((), jnp.int32)

    def step(self, state: Int[Array, ""], action: Int[Array, ""], noise: Noise) -> Outcome:
        """Pay; never terminated, truncated at the limit."""
        elapsed = state + 1
        return elapsed, jnp.ones(()), jnp.asarray(False), elapsed >= self.time_limit

    def observe(self, state: Int[Array, ""]) -> Observation:
        """Always the same: the clock is hidden."""
        return jnp.ones(1)


def _random_sign(key: PRNGKeyArray) -> Observation:
    return jax.random.rademacher(key, (1,), jnp.float32)
