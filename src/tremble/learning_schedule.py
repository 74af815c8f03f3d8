"""When an agent learns: one rule, which both training loops ask."""

from __future__ import annotations

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from tremble.core import Settings
from tremble.settings import COUNT, NON_NEGATIVE, SIZE


class LearningSchedule(Settings):
    """Batch size, and the steps at which updates are made. Steps are transitions, counted from 0."""

    batch_size: Annotated[int, SIZE] = eqx.field(static=True, default=32)
    """Samples of an update."""
    start_steps: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=50_000)
    """Transitions before learning starts."""
    update_interval: Annotated[int, COUNT] = eqx.field(static=True, default=1)
    """Transitions between two rounds of learning."""
    updates_per_round: Annotated[int, SIZE] = eqx.field(static=True, default=1)
    """Updates in a round. 256 with an interval of 256 learns as often as 1 with 1, in bursts."""
    target_update_interval: Annotated[int, COUNT] = eqx.field(static=True, default=10_000)
    """Transitions between two updates of the target parameters."""

    @property
    def first_step(self) -> int:
        """The first step that may learn: one transition at least is needed."""
        return max(self.start_steps, 1)

    def learns_at(self, t: int | Int[Array | np.ndarray, "*steps"]) -> Any:
        """Whether step t has a round of learning, which learns from the t transitions before it."""
        return (t >= self.first_step) & (t % self.update_interval == 0)

    def updates_target_at(self, t: int | Int[Array | np.ndarray, "*steps"]) -> Any:
        """Whether step t updates the target parameters, before its round of learning."""
        return t % self.target_update_interval == 0

    def updates_before(self, t: int | Int[Array, ""]) -> Int[Array, ""]:
        """How many updates were made before step t."""

        def rounds(n: Any) -> Any:
            return -(-n // self.update_interval)

        return self.updates_per_round * jnp.maximum(rounds(t) - rounds(self.first_step), 0)
