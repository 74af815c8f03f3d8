"""Risk-neutral: the expected return."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Clock, Noise
from tremble.dist import ReturnDist


class Mean(eqx.Module):
    """score(a) = E[Z(a)]."""

    def draw(self, key: PRNGKeyArray) -> Noise:
        """Nothing to draw."""
        return ()

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """The mean of each action."""
        return dist.mean()

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Nothing changes over time."""
        return {}
