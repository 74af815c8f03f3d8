"""The best CVaR of the return from the start over all policies, exactly, by augmenting the state with a threshold.

CVaR_eta(Z) = max_b { b - E[(b - Z)^+] / eta } (Rockafellar and Uryasev 2000), so the best over policies is

    max_b { b - V(s_0, b) / eta },    V(s, y) = min_a E[V(S', y - R)],    V(end, y) = max(y, 0),

where y is the remaining amount to the threshold b (Baeuerle and Ott 2011). The policy depends on y, that is on the
rewards so far; policies of the state alone may be worse. Undiscounted, on a `tremble.theory.lattice`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tremble.theory.lattice import CONVERGED, Lattice, first_best


@dataclass(frozen=True)
class StaticCVaR:
    """The optimum and its policy."""

    cvar: float
    """The best CVaR from the start."""
    threshold: float
    """b, the eta-quantile of the optimal return."""
    policy: np.ndarray
    """Action by state and by y: ``[states, n]``, y on the lattice's values."""
    returns: np.ndarray
    """Distribution of the optimal return on the lattice's values."""


def shortfall(lattice: Lattice) -> tuple[np.ndarray, np.ndarray]:
    """V ``[states, n]`` and its policy, y running over the lattice's values.

    Above the lattice V has slope 1 (every return falls short), below it V is 0 (none does).
    """
    y = lattice.values
    ended = np.maximum(y, 0.0)
    value = np.tile(ended, (len(lattice.terminal), 1))
    for _ in range(2_000):
        wanted = _expected(lattice, np.where(lattice.terminal[:, None], ended, value))
        new = wanted.min(1)
        if np.abs(new - value)[~lattice.terminal].max() < CONVERGED:
            return new, first_best(np.moveaxis(-wanted, 1, -1))
        value = new
    raise ValueError("the expected shortfall does not converge: can every state reach the end of the episode?")


def _expected(lattice: Lattice, value: np.ndarray) -> np.ndarray:
    """E[V(S', y - R) | s, a] as ``[states, actions, n]``."""
    total = np.zeros((*lattice.law.shape[1:3], lattice.n))
    for law, by in zip(lattice.law, lattice.shifts, strict=True):
        at = np.arange(lattice.n) - int(by)
        above = np.maximum(at - (lattice.n - 1), 0) * lattice.unit
        moved = np.where(at < 0, 0.0, value[:, np.clip(at, 0, lattice.n - 1)] + above)
        total += np.einsum("sat,tn->san", law, moved)
    return total


def static_cvar(lattice: Lattice, eta: float) -> StaticCVaR:
    """The optimum over all policies, including those that depend on the history."""
    value, policy = shortfall(lattice)
    objective = lattice.values - value[lattice.start] / eta
    best = int(objective.argmax())
    # Forward: the joint law of state and y under the policy, until all of it has ended.
    mass = np.zeros((len(lattice.terminal), lattice.n))
    mass[lattice.start, best] = 1.0
    for _ in range(5_000):
        alive = mass * ~lattice.terminal[:, None]
        if alive.sum() < 1e-12:
            break
        mass = mass - alive
        for action in range(lattice.law.shape[2]):
            taken = np.where(policy == action, alive, 0.0)
            for law, by in zip(lattice.law, lattice.shifts, strict=True):
                mass += law[:, action].T @ lattice.shifted(taken, -int(by))
    # At the end y = b - Z, so the law of Z is that of y reversed.
    returns = np.zeros(lattice.n)
    np.add.at(returns, np.clip(best - lattice.lowest - np.arange(lattice.n), 0, lattice.n - 1), mass.sum(0))
    return StaticCVaR(float(objective[best]), float(lattice.values[best]), policy, returns)
