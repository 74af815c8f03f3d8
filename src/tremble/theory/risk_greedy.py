"""Two meanings of acting by CVaR, exactly: on the returns of the risk-neutral policy, and a risk-greedy fixed point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tremble.theory.lattice import CONVERGED, Lattice, first_best, followed


@dataclass(frozen=True)
class Greedy:
    """A policy, the returns it is greedy for, and its actual returns."""

    policy: np.ndarray
    """Action of every state."""
    predicted: np.ndarray
    """Z ``[states, actions, n]`` by which the policy is greedy."""
    experienced: np.ndarray
    """Z ``[states, n]`` of following it."""


@dataclass(frozen=True)
class FixedPoint:
    """Result of iterating the risk-greedy backup from one initial value."""

    found: Greedy
    iterations: int
    converged: bool
    """Whether distributions stopped changing; if not, `period` says how the greedy policies repeat."""
    period: int
    """1 for a fixed point; more for a cycle; 0 if neither was found."""


def mean_greedy(lattice: Lattice) -> Greedy:
    """The risk-neutral optimum, by value iteration."""
    law, rewards = lattice.law, lattice.unit * lattice.shifts
    reward = np.einsum("d,dsat->sa", rewards, law)
    onward = law.sum(0) * ~lattice.terminal
    value = np.zeros(len(lattice.terminal))
    for _ in range(1_000):
        value = (reward + onward @ value).max(-1)
    policy = first_best(reward + onward @ value)
    z = lattice.returns(policy)
    return Greedy(policy, z, followed(z, policy))


def acting_only(lattice: Lattice, eta: float) -> Greedy:
    """(i) Greedy for CVaR on the returns of the risk-neutral policy: the criterion applies to behaviour only."""
    z = mean_greedy(lattice).predicted
    policy = first_best(lattice.cvar(z, eta))
    return Greedy(policy, z, followed(lattice.returns(policy), policy))


def fixed_point(lattice: Lattice, eta: float, begin: np.ndarray | None = None, most: int = 3_000) -> FixedPoint:
    """(ii) Z <- R + Z(S', argmax_a CVaR Z(S', a)) until convergence or ``most`` iterations.

    The backup is no contraction under a risk measure, so it may also cycle.
    """
    z = np.tile(lattice.nothing(), (*lattice.law.shape[1:3], 1)) if begin is None else begin
    policies: list[bytes] = []
    for number in range(1, most + 1):
        policy = first_best(lattice.cvar(z, eta))
        policies.append(policy.tobytes())
        new = lattice.backup(followed(z, policy))
        moved = np.abs(new - z).sum(-1).max()
        z = new
        if moved < CONVERGED:
            return FixedPoint(Greedy(policy, z, followed(z, policy)), number, True, 1)
    recent = policies[-200:]
    repeats = [p for p in range(1, 101) if all(a == b for a, b in zip(recent, recent[p:], strict=False))]
    policy = first_best(lattice.cvar(z, eta))
    found = Greedy(policy, z, followed(lattice.returns(policy), policy))
    return FixedPoint(found, most, False, min(repeats, default=0))
