"""Summaries over environments with unequal numbers of runs, and their stratified bootstrap intervals.

Scores are a list for each environment. A run of an environment with n_e runs has the weight 1 / (G n_e), so that each
of G environments counts the same; with equal numbers all summaries are those of `tremble.report.scores` (and rliable).
A bootstrap draws runs with replacement within each environment, which only changes their weights: a replicate is a row
of weights, and all of them are one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tremble.report.statistics import Interval

REPS = 2000
Lists = Sequence[np.ndarray]
"""Scores of one agent: an array for each environment."""


def run_weights(counts: Sequence[int]) -> Float[np.ndarray, "runs"]:
    """The weight of each run, 1 / (G n_e); they sum to 1."""
    return np.concatenate([np.full(n, 1.0 / (len(counts) * n)) for n in counts])


def drawn_weights(counts: Sequence[int], rng: np.random.Generator, reps: int = REPS) -> Float[np.ndarray, "reps runs"]:
    """Weights of bootstrap replicates: how often each run is drawn among those of its environment, over G n_e."""
    return np.concatenate(
        [rng.multinomial(n, np.full(n, 1.0 / n), size=reps) / (len(counts) * n) for n in counts], axis=1
    )


def iqm(values: Float[np.ndarray, "runs"], weights: Float[np.ndarray, "reps runs"]) -> Float[np.ndarray, "reps"]:
    """Interquartile mean of each row of weights: floor(N / 4) of N runs, counted by weight, are cut at either end."""
    order = np.argsort(values, kind="stable")
    n = len(values)
    cut = n // 4
    after = np.cumsum(weights[:, order], axis=1) * n
    before = np.concatenate([np.zeros((len(weights), 1)), after[:, :-1]], axis=1)
    kept = np.clip(np.minimum(after, n - cut) - np.maximum(before, cut), 0.0, None)
    return (kept @ values[order]) / kept.sum(1)


def summaries(lists: Lists, weights: Float[np.ndarray, "reps runs"]) -> dict[str, Float[np.ndarray, "reps"]]:
    """The four summaries of `tremble.report.scores.AGGREGATES`, for each row of weights."""
    values = np.concatenate(lists)
    starts = np.cumsum([0, *map(len, lists)])[:-1]
    means = np.add.reduceat(weights * values, starts, axis=1) * len(lists)
    return {
        "iqm": iqm(values, weights),
        "mean": means.mean(1),
        "median": np.median(means, axis=1),
        "optimality_gap": 1.0 - weights @ np.minimum(values, 1.0),
    }


def aggregate(lists: Lists, reps: int = REPS, level: float = 0.95, seed: int = 0) -> dict[str, Interval]:
    """Each summary with a percentile interval; without one where an environment has a single run."""
    counts = [len(scores) for scores in lists]
    found = {name: float(value[0]) for name, value in summaries(lists, run_weights(counts)[None]).items()}
    if min(counts) < 2:
        return {name: Interval(value, -np.inf, np.inf, min(counts)) for name, value in found.items()}
    drawn = summaries(lists, drawn_weights(counts, np.random.default_rng(seed), reps))
    ends = {name: np.percentile(values, [50 * (1 - level), 50 * (1 + level)]) for name, values in drawn.items()}
    return {
        name: Interval(value, float(ends[name][0]), float(ends[name][1]), min(counts)) for name, value in found.items()
    }


@dataclass(frozen=True)
class Profile:
    """Share of runs with a score above each threshold, each environment counting the same, with a pointwise band."""

    thresholds: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray


def profile(lists: Lists, thresholds: np.ndarray, reps: int = 1000, level: float = 0.95, seed: int = 0) -> Profile:
    """The performance profile (Agarwal et al., 2021): mean over environments of the share of runs above each threshold.

    The band has percentile intervals of the stratified bootstrap; it is NaN where an environment has a single run.
    """
    counts = [len(scores) for scores in lists]
    above = (np.concatenate(lists)[:, None] > thresholds[None, :]).astype(float)
    share = run_weights(counts) @ above
    if min(counts) < 2:
        return Profile(thresholds, share, np.full_like(share, np.nan), np.full_like(share, np.nan))
    drawn = drawn_weights(counts, np.random.default_rng(seed), reps) @ above
    low, high = np.percentile(drawn, [50 * (1 - level), 50 * (1 + level)], axis=0)
    return Profile(thresholds, share, low, high)


def min_max(lists: Mapping[str, Lists]) -> dict[str, list[np.ndarray]]:
    """Scores of several agents, (score - worst) / (best - worst) with the worst and best run of each environment.

    Relative to the runs at hand: 0 and 1 are runs of theirs. Where all runs score the same, all of them are at 1.
    """
    found: dict[str, list[np.ndarray]] = {name: [] for name in lists}
    for here in zip(*lists.values(), strict=True):
        low, high = min(scores.min() for scores in here), max(scores.max() for scores in here)
        for name, scores in zip(lists, here, strict=True):
            found[name].append((scores - low) / (high - low) if high > low else np.ones_like(scores))
    return found
