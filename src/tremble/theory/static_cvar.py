"""The best CVaR of the return from the start that any policy can reach, exactly: the state is widened by a threshold.

CVaR_eta(Z) = max_b { b - E[(b - Z)^+] / eta } (Rockafellar and Uryasev 2000), so the best over policies is

    max_b { b - V(s_0, b) / eta },    V(s, y) = min_a E[V(S', y - R)],    V(end, y) = max(y, 0),

where y is what is still missing to the threshold b (Baeuerle and Ott 2011). Its policy looks at y, that is at what was
won or lost so far; no policy of the state alone need be as good. Undiscounted, on a `tremble.theory.lattice`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tremble.theory.lattice import TIE, Lattice


@dataclass(frozen=True)
class StaticCVaR:
    """The optimum and its policy."""

    cvar: float
    """The best CVaR from the start."""
    threshold: float
    """b, the eta-quantile of the optimal return."""
    policy: np.ndarray
    """Action by state and by y: ``[states, n]``, y on ``values``."""
    values: np.ndarray
    returns: np.ndarray
    """Distribution of the optimal return on the lattice's values."""


def shortfall(lattice: Lattice, iterations: int = 2_000, tolerance: float = 1e-12) -> tuple[np.ndarray, np.ndarray]:
    """V ``[states, n]`` and its policy, y running over the lattice's values.

    Above the lattice V rises with slope 1 (whatever comes falls short), below it V is 0 (nothing falls short).
    """
    y = lattice.values
    ended = np.maximum(y, 0.0)
    value = np.tile(ended, (len(lattice.terminal), 1))
    for _ in range(iterations):
        wanted = _expected(lattice, np.where(lattice.terminal[:, None], ended, value))
        new = wanted.min(1)
        if np.abs(new - value)[~lattice.terminal].max() < tolerance:
            value = new
            break
        value = new
    else:
        raise ValueError("the expected shortfall does not settle: can episodes be ended from everywhere?")
    best: np.ndarray = (wanted <= wanted.min(1, keepdims=True) + TIE).argmax(1)
    return value, best


def _expected(lattice: Lattice, value: np.ndarray) -> np.ndarray:
    """E[V(S', y - R) | s, a] as ``[states, actions, n]``."""
    total = np.zeros((*lattice.law.shape[1:3], lattice.n))
    for law, by in zip(lattice.law, lattice.shifts, strict=True):
        at = np.arange(lattice.n) - int(by)
        above = np.maximum(at - (lattice.n - 1), 0) * lattice.unit
        moved = np.where(at < 0, 0.0, value[:, np.clip(at, 0, lattice.n - 1)] + above)
        total += np.einsum("sat,tn->san", law, moved)
    return total


def static_cvar(lattice: Lattice, eta: float, most: int = 5_000) -> StaticCVaR:
    """The optimum over all policies, of the whole history if need be."""
    value, policy = shortfall(lattice)
    objective = lattice.values - value[lattice.start] / eta
    best = int(objective.argmax())
    # Forward: the joint law of state and y under the policy, until all of it has ended.
    mass = np.zeros((len(lattice.terminal), lattice.n))
    mass[lattice.start, best] = 1.0
    for _ in range(most):
        alive = mass * ~lattice.terminal[:, None]
        if alive.sum() < 1e-12:
            break
        mass = mass - alive
        for action in range(lattice.law.shape[2]):
            taken = np.where(policy == action, alive, 0.0)
            for law, by in zip(lattice.law, lattice.shifts, strict=True):
                mass += law[:, action].T @ lattice.shifted(taken, -int(by))
    # What is missing in the end is b - Z, so the law of Z is that of y read backwards.
    returns = np.zeros(lattice.n)
    np.add.at(returns, np.clip(best - lattice.lowest - np.arange(lattice.n), 0, lattice.n - 1), mass.sum(0))
    return StaticCVaR(float(objective[best]), float(lattice.values[best]), policy, lattice.values, returns)
