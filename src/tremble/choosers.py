"""From scores to an action: greedy with random ties, epsilon-greedy, uniform start, action mask."""

from __future__ import annotations

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from tremble import schedules
from tremble.core import Clock, Scalar, Settings, TimeOrigin
from tremble.settings import NON_NEGATIVE, SHARE


class ChoiceNoise(eqx.Module):
    """The random numbers of one choice, drawn before scores are known."""

    explore: Float[Array, "*batch"]
    """Uniform; below epsilon the action is random."""
    priority: Float[Array, "*batch actions"]
    """Uniform per action; the largest among the permitted wins ties and random choices."""


def draw_choice(key: PRNGKeyArray, n_actions: int) -> ChoiceNoise:
    """Random numbers for one choice among ``n_actions``."""
    numbers = jax.random.uniform(key, (n_actions + 1,))
    return ChoiceNoise(numbers[0], numbers[1:])


def greedy(scores: Float[Array, "actions"], mask: Bool[Array, "actions"] | None, noise: ChoiceNoise) -> Int[Array, ""]:
    """A permitted action of the highest score, ties broken uniformly at random."""
    permitted = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    preference = jnp.where(permitted == permitted.max(), noise.priority, -1.0)
    # Once more, because a permitted score may be -inf or NaN: even then no forbidden action is taken.
    return jnp.argmax(preference if mask is None else jnp.where(mask, preference, -2.0))


def uniform(n_actions: int, mask: Bool[Array, "actions"] | None, noise: ChoiceNoise) -> Int[Array, ""]:
    """A permitted action, uniformly at random."""
    return jnp.argmax(noise.priority if mask is None else jnp.where(mask, noise.priority, -1.0))


class Chooser(Settings):
    """Epsilon-greedy on the scores of a criterion, uniform during the start steps.

    epsilon falls linearly from ``epsilon_start`` to ``epsilon_end`` over ``epsilon_decay_steps`` transitions,
    counted from the first one or from where learning starts (``epsilon_origin``). Agents that explore by their
    criterion have all of it at zero.
    """

    epsilon_start: Annotated[Scalar, SHARE] = 0.0
    """Probability of a random action in the beginning."""
    epsilon_end: Annotated[Scalar, SHARE] = 0.0
    """Probability of a random action in the end."""
    epsilon_decay_steps: Annotated[Scalar, NON_NEGATIVE] = 0.0
    """Transitions over which it falls from one to the other."""
    random_start: bool = eqx.field(static=True, default=True)
    """Act uniformly at random until learning starts."""
    use_representation: bool = eqx.field(static=True, default=True)
    """Whether a representation that overrides action selection (QUOTA's options, NDQFN's bonus) does so."""
    epsilon_origin: TimeOrigin = eqx.field(static=True, default="zero")
    """Where it begins to fall: at the first transition, or where learning starts."""

    def epsilon(self, clock: Clock) -> Float[Array, ""]:
        """Probability of a random action now."""
        t = clock.time("transitions", self.epsilon_origin)
        return schedules.linear(t, self.epsilon_start, self.epsilon_end, self.epsilon_decay_steps)

    def choose(
        self,
        scores: Float[Array, "actions"],
        mask: Bool[Array, "actions"] | None,
        noise: ChoiceNoise,
        clock: Clock,
    ) -> Int[Array, ""]:
        """The action to take."""
        explore = noise.explore < self.epsilon(clock)
        if self.random_start:
            explore |= jnp.asarray(clock.transitions) < clock.start_transitions
        return jnp.where(explore, uniform(scores.shape[0], mask, noise), greedy(scores, mask, noise))
