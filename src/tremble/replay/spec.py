"""Settings of replay."""

from __future__ import annotations

from typing import Annotated

import equinox as eqx

from tremble.core import Settings
from tremble.settings import NON_NEGATIVE, SHARE, SIZE, SettingsError


class ReplaySpec(Settings):
    """Items of ``n_step`` steps, sampled uniformly or in proportion to priority^exponent; or rollouts, each of which is
    learned from once.
    """

    n_step: Annotated[int, SIZE] = eqx.field(static=True, default=1)
    """Rewards summed before the bootstrap: R = sum_k gamma^k r_k, discount gamma^n."""
    prioritised: bool = eqx.field(static=True, default=False)
    """Sample by the last loss of an item instead of uniformly."""
    priority_exponent: Annotated[float, SHARE] = eqx.field(static=True, default=0.6)
    """0 is uniform, 1 proportional to the loss."""
    importance_start: Annotated[float, SHARE] = eqx.field(static=True, default=0.4)
    """Exponent of the importance weights at the start: 1 removes the bias of prioritised sampling."""
    importance_end: Annotated[float, SHARE] = eqx.field(static=True, default=1.0)
    """Exponent at the end."""
    importance_steps: Annotated[float, NON_NEGATIVE] = eqx.field(static=True, default=100_000.0)
    """Transitions over which the exponent rises linearly."""
    rollout: Annotated[int, NON_NEGATIVE] = eqx.field(static=True, default=0)
    """Steps of a rollout; 0 is a replay memory. Every batch is then the last so many steps of each environment, once;
    n-step windows end with the rollout, so its first step has min(n_step, rollout) rewards and its last has one."""

    def __check_init__(self) -> None:
        """Validate fields."""
        if self.rollout and self.prioritised:
            raise SettingsError("a rollout is learned from as a whole: prioritised needs rollout=0")

    def importance_exponent(self, transitions: int) -> float:
        """The exponent after this number of transitions."""
        share = min(transitions / self.importance_steps, 1.0) if self.importance_steps > 0 else 1.0
        return self.importance_start + share * (self.importance_end - self.importance_start)
