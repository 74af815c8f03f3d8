"""Optimisers as records of hyperparameters; `transform` makes the optax optimiser.

Learning rates and epsilons are traced, so one compiled program serves several of them.
"""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import optax
from jaxtyping import ArrayLike

from tremble.core import Scalar, Settings
from tremble.settings import NON_NEGATIVE, POSITIVE, SHARE


class Adam(Settings):
    """Adam as the published agents use it; presets set its epsilon to 0.01 / batch size."""

    learning_rate: Annotated[Scalar, NON_NEGATIVE] = 5e-5
    """Step size."""
    adam_epsilon: Annotated[Scalar, POSITIVE] = 1e-8
    """Added to the root of the mean square, below the gradient."""
    max_grad_norm: Annotated[float, POSITIVE] | None = eqx.field(static=True, default=None)
    """Clip the gradient's global norm to this; None does not."""
    decay_updates: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Lower the learning rate linearly to zero over so many updates; 0 keeps it."""

    def rate(self, updates: ArrayLike) -> Any:
        """The learning rate after so many updates."""
        return _rate(self.learning_rate, self.decay_updates, updates)

    def transform(self) -> optax.GradientTransformation:
        """The optax optimiser."""
        rate = _learning_rate(self.learning_rate, self.decay_updates)
        return _clipped(optax.adam(rate, eps=self.adam_epsilon), self.max_grad_norm)


class RMSProp(Settings):
    """RMSProp without momentum: gradient / (sqrt(mean square) + epsilon), as in PyTorch; or centred."""

    learning_rate: Annotated[Scalar, NON_NEGATIVE] = 1e-4
    """Step size."""
    rms_decay: Annotated[Scalar, SHARE] = 0.99
    """Of the running means."""
    rms_epsilon: Annotated[Scalar, POSITIVE] = 1e-5
    """Added to the root of the mean square, or inside it if centred."""
    centred: bool = eqx.field(static=True, default=False)
    """Divide by sqrt(mean square - squared mean + epsilon) instead, as the DQN of 2015 does."""
    max_grad_norm: Annotated[float, POSITIVE] | None = eqx.field(static=True, default=None)
    """Clip the gradient's global norm to this; None does not."""
    decay_updates: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Lower the learning rate linearly to zero over so many updates; 0 keeps it."""

    def rate(self, updates: ArrayLike) -> Any:
        """The learning rate after so many updates."""
        return _rate(self.learning_rate, self.decay_updates, updates)

    def transform(self) -> optax.GradientTransformation:
        """The optax optimiser."""
        rate = _learning_rate(self.learning_rate, self.decay_updates)
        rmsprop = optax.rmsprop(
            rate, decay=self.rms_decay, eps=self.rms_epsilon, centered=self.centred, eps_in_sqrt=self.centred
        )
        return _clipped(rmsprop, self.max_grad_norm)


Optimiser = Adam | RMSProp


def _learning_rate(rate: Scalar, decay_updates: int) -> optax.ScalarOrSchedule:
    return optax.linear_schedule(rate, 0.0, decay_updates) if decay_updates else rate


def _rate(rate: Scalar, decay_updates: int, updates: ArrayLike) -> Any:
    schedule = _learning_rate(rate, decay_updates)
    return schedule(updates) if callable(schedule) else schedule


def _clipped(optimiser: optax.GradientTransformation, max_grad_norm: float | None) -> optax.GradientTransformation:
    if max_grad_norm is None:
        return optimiser
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optimiser)
