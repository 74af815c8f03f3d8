"""Probability of improvement: how often a run of one agent beats a run of another on the same environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float

from tremble.report.resampling import Lists, drawn_weights
from tremble.report.statistics import Interval

REPS = 1000


def probability_of_improvement(first: Lists, second: Lists) -> float:
    """P(X > Y) + P(X = Y) / 2 for a run X of the first and Y of the second, mean over environments."""
    return float(np.mean([_wins(x, y).mean() for x, y in zip(first, second, strict=True)]))


def improvements(
    lists: Mapping[str, Lists], pairs: Iterable[tuple[str, str]], reps: int = REPS, level: float = 0.95
) -> dict[tuple[str, str], Interval]:
    """The probability for some pairs of agents, with percentile intervals of the stratified bootstrap.

    Runs are drawn within each environment, for each agent on its own (as rliable does, seeds are not paired). Where an
    environment has a single run, its spread is unknown, and there is no interval.
    """
    drawn: dict[str, np.ndarray] = {}
    for number, (name, scores) in enumerate(lists.items()):
        counts = [len(here) for here in scores]
        drawn[name] = drawn_weights(counts, np.random.default_rng(number), reps) * len(counts)
    found = {}
    for first, second in pairs:
        x, y = lists[first], lists[second]
        estimate, fewest = probability_of_improvement(x, y), min(len(scores) for scores in (*x, *y))
        if fewest < 2:
            found[first, second] = Interval(estimate, -np.inf, np.inf, fewest)
            continue
        values = _resampled(x, y, drawn[first], drawn[second])
        low, high = np.percentile(values, [50 * (1 - level), 50 * (1 + level)])
        found[first, second] = Interval(estimate, float(low), float(high), fewest)
    return found


def improvement_interval(first: Lists, second: Lists, reps: int = REPS, level: float = 0.95) -> Interval:
    """The probability for one pair, as `improvements` has it."""
    return improvements({"first": first, "second": second}, [("first", "second")], reps, level)["first", "second"]


def _wins(x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "n m"]:
    """1 where a run of the first is above one of the second, 1/2 where they are equal."""
    return (x[:, None] > y[None, :]) + 0.5 * (x[:, None] == y[None, :])


def _resampled(x: Lists, y: Lists, rows: np.ndarray, columns: np.ndarray) -> Float[np.ndarray, "reps"]:
    """The probability in each replicate, from the weights of the runs, which sum to 1 within each environment."""
    wins = np.zeros((rows.shape[1], columns.shape[1]))
    ends_x, ends_y = np.cumsum([0, *map(len, x)]), np.cumsum([0, *map(len, y)])
    for i in range(len(x)):
        wins[ends_x[i] : ends_x[i + 1], ends_y[i] : ends_y[i + 1]] = _wins(x[i], y[i])
    return ((rows @ wins) * columns).sum(1) / len(x)
