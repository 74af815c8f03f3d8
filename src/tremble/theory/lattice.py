"""Exact return distributions of undiscounted problems whose rewards are multiples of one unit.

Without discount every return is a multiple of the unit, and a reward shifts a distribution by whole cells, so
distributional dynamic programming needs no projection. In NumPy and double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tremble.settings import SettingsError
from tremble.theory.mdp import FiniteMDP

TIE = 1e-9
"""Scores closer than this count as equal, and the first action wins."""
CONVERGED = 1e-12
"""Iterations end when the largest change is smaller."""


@dataclass(frozen=True)
class Lattice:
    """An MDP and the returns ``values[k] = unit * (lowest + k)``; mass beyond either end stays at the end."""

    law: np.ndarray
    """p(r_d, s' | s, a), ``[rewards, states, actions, states]``."""
    shifts: np.ndarray
    """Rewards in units."""
    terminal: np.ndarray
    start: int
    unit: float
    lowest: int
    n: int

    @staticmethod
    def of(mdp: FiniteMDP, unit: float = 0.01, low: float = -8.0, high: float = 4.0) -> Lattice:
        """The lattice of an undiscounted MDP."""
        if float(mdp.gamma) != 1.0:
            raise SettingsError(f"exact lattices are for gamma = 1, got {float(mdp.gamma)}")
        rewards = np.asarray(mdp.rewards, np.float64) / unit
        if np.abs(rewards - rewards.round()).max() > 1e-3:
            raise SettingsError(f"rewards must be multiples of the unit {unit}: {np.asarray(mdp.rewards)}")
        law = np.asarray(mdp.law, np.float64)
        law = law / law.sum((0, 3), keepdims=True)
        lowest, highest = round(low / unit), round(high / unit)
        terminal = np.asarray(mdp.terminal)
        return Lattice(law, rewards.round().astype(int), terminal, int(mdp.start), unit, lowest, highest - lowest + 1)

    @property
    def values(self) -> np.ndarray:
        """The returns."""
        return self.unit * (self.lowest + np.arange(self.n))

    def nothing(self) -> np.ndarray:
        """The distribution of the return 0."""
        return (np.arange(self.n) == -self.lowest).astype(float)

    def shifted(self, mass: np.ndarray, by: int) -> np.ndarray:
        """``mass[..., n]`` shifted up by ``by`` cells."""
        made = np.roll(mass, by, -1)
        if by > 0:
            made[..., -1] += made[..., :by].sum(-1)
            made[..., :by] = 0.0
        elif by < 0:
            made[..., 0] += made[..., by:].sum(-1)
            made[..., by:] = 0.0
        return made

    def backup(self, future: np.ndarray) -> np.ndarray:
        """R + Z(S') exactly, from ``future[states, n]`` to ``[states, actions, n]``."""
        future = np.where(self.terminal[:, None], self.nothing(), future)
        moved = [self.shifted(future, int(by)) for by in self.shifts]
        made: np.ndarray = sum(
            np.einsum("sat,tn->san", law, shifted) for law, shifted in zip(self.law, moved, strict=True)
        )
        return made

    def returns(self, policy: np.ndarray) -> np.ndarray:
        """Z^pi ``[states, actions, n]``: the given action, then the policy.

        Raises if the policy does not terminate, because its return has no distribution.
        """
        z = np.tile(self.nothing(), (*self.law.shape[1:3], 1))
        for _ in range(5_000):
            new = self.backup(followed(z, policy))
            if np.abs(new - z).sum(-1).max() < CONVERGED:
                return new
            z = new
        raise ValueError("the policy does not terminate")

    def quantile_returns(self, policy: np.ndarray, n: int, iterations: int = 400) -> np.ndarray:
        """Returns of the policy by ``n`` quantiles a state, ``[states, n]``: each backup keeps those at (i - 1/2)/n.

        What `returns` computes exactly, as an agent with quantiles represents it; the tails are lost first.
        """
        levels, z = (np.arange(n) + 0.5) / n, np.zeros((len(policy), n))
        for _ in range(iterations):
            new = np.zeros_like(z)
            for state in np.flatnonzero(~self.terminal):
                law = self.law[:, state, policy[state]]
                reward, after = np.nonzero(law)
                values = self.unit * self.shifts[reward][:, None] + z[after]  # z of a terminal state is 0
                order = np.argsort(values, axis=None)
                mass = np.cumsum(np.repeat(law[reward, after] / n, n)[order])
                new[state] = values.ravel()[order][np.searchsorted(mass, levels - 1e-12)]
            z = new
        return z

    def visits(self, policy: np.ndarray) -> np.ndarray:
        """Expected visits of each state in an episode of a policy that terminates."""
        onward = followed(self.law.sum(0), policy) * ~self.terminal
        first = (np.arange(len(policy)) == self.start).astype(float)
        return np.linalg.solve(np.eye(len(policy)) - onward.T, first)

    def mean(self, mass: np.ndarray) -> np.ndarray:
        """Expectation along the last axis."""
        return np.asarray(mass @ self.values)

    def cvar(self, mass: np.ndarray, eta: float) -> np.ndarray:
        """Mean of the lowest ``eta`` share of the mass."""
        kept = np.minimum(np.cumsum(mass, -1) / eta, 1.0)
        return np.asarray(np.diff(kept, axis=-1, prepend=0.0) @ self.values)


def first_best(scores: np.ndarray) -> np.ndarray:
    """The first of the best actions, ``[states, actions]`` to ``[states]``."""
    return np.asarray((scores >= scores.max(-1, keepdims=True) - TIE).argmax(-1))


def followed(z: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """The returns of the policy's own actions, ``[states, actions, n]`` to ``[states, n]``."""
    return np.asarray(z[np.arange(len(policy)), policy])
