"""Risk-neutral: the expected return."""

from __future__ import annotations

from jaxtyping import Array, Float

from tremble.criteria.base import RiskMeasure
from tremble.dist import ReturnDist


class Mean(RiskMeasure):
    """score(a) = E[Z(a)]."""

    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """The mean of each action."""
        return dist.mean()
