"""Axis B: what a criterion is. It turns a return distribution into one score per action."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Array, Float, PRNGKeyArray

from tremble.core import Clock, Noise, Settings
from tremble.dist import ReturnDist


class Criterion(Settings):
    """A risk attitude or an exploration method: scores actions by their return distributions.

    Drawing and scoring are apart, so that noise can be drawn in bulk, shared between behaviour and target, kept for an
    episode, or shown. Array-like fields are traced, so one compiled program serves several values; others are static.
    """

    def draw(self, key: PRNGKeyArray) -> Noise:
        """Noise for one decision, any pytree of arrays; ``()`` if there is none, which is the default."""
        return ()

    @abstractmethod
    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """Score of ``dist.atoms[*actions, atoms]``, larger is better."""

    def metrics(self, noise: Noise, clock: Clock) -> dict[str, Float[Array, ""]]:
        """Named scalars for the log, such as the size of a perturbation."""
        return {}


class RiskMeasure(Criterion):
    """A deterministic criterion that does not change over time; a new one defines `measure`."""

    @abstractmethod
    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """The measure of ``dist.atoms[*actions, atoms]``, larger is better."""

    def score(self, dist: ReturnDist, noise: Noise, clock: Clock) -> Float[Array, "*actions"]:
        """The measure of each action."""
        return self.measure(dist)


class Mean(RiskMeasure):
    """score(a) = E[Z(a)]."""

    def measure(self, dist: ReturnDist) -> Float[Array, "*actions"]:
        """The mean of each action."""
        return dist.mean()
