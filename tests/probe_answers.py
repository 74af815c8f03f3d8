"""The exact returns of the probes (`tremble.worlds.probes`), which tests compare learned distributions with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tremble.worlds import probes


@dataclass(frozen=True)
class Answer:
    """The exact return of one action at one observation, acting optimally afterwards: some outcomes and their odds."""

    obs: tuple[float, ...]
    action: int
    outcomes: tuple[float, ...]
    probabilities: tuple[float, ...] = (1.0,)

    @property
    def mean(self) -> float:
        """sum_k probabilities_k outcomes_k."""
        return sum(p * z for p, z in zip(self.probabilities, self.outcomes, strict=True))


SIGNS, ACTIONS = (-1.0, 1.0), (0, 1)

ANSWERS: dict[type[probes.Probe], Callable[[float], list[Answer]]] = {
    probes.ConstantReward: lambda gamma: [Answer((1.0,), action, (1.0,)) for action in ACTIONS],
    probes.ObservationValue: lambda gamma: [Answer((s,), action, (s,)) for s in SIGNS for action in ACTIONS],
    # Gamma at the first step, 1 at the second, whatever the action.
    probes.Discounting: lambda gamma: [
        Answer(obs, action, (value,)) for obs, value in (((1.0, 0.0), gamma), ((0.0, 1.0), 1.0)) for action in ACTIONS
    ],
    probes.ActionChoice: lambda gamma: [Answer((1.0,), 0, (-1.0,)), Answer((1.0,), 1, (1.0,))],
    # +1 where action and sign match.
    probes.JointPolicy: lambda gamma: [
        Answer((sign,), action, (sign * (2 * action - 1),)) for sign in SIGNS for action in ACTIONS
    ],
    probes.TwoPointReward: lambda gamma: [Answer((1.0,), 0, (0.0, 2.0), (0.5, 0.5)), Answer((1.0,), 1, (1.0,))],
    # The infinite sum 1 + gamma + gamma^2 + ...
    probes.TruncationOnly: lambda gamma: [Answer((1.0,), action, (1.0 / (1.0 - gamma),)) for action in ACTIONS],
}


def answers(probe: probes.Probe, gamma: float) -> list[Answer]:
    """The exact return at every observation and action."""
    return ANSWERS[type(probe)](gamma)
