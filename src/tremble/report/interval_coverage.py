"""How often intervals of 95 % hold their target with few seeds, as a simulation found; said beside the intervals.

The numbers are those of ``docs/results/interval-coverage`` (`python -m tests.coverage`); a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MEAN_NORMAL: Mapping[int, int] = MappingProxyType({3: 95, 5: 95, 10: 95, 30: 95})
"""Student's t interval of the mean, normal scores: percent by number of seeds."""
MEAN_BIMODAL: Mapping[int, int] = MappingProxyType({3: 75, 5: 69, 10: 89, 30: 93})
"""The same where two of ten runs fail."""
SUMMARY_NORMAL: Mapping[int, int] = MappingProxyType({3: 86, 5: 92, 10: 93, 30: 94})
"""Stratified bootstrap of the interquartile mean over ten environments, normal scores."""


def about_means(seeds: int) -> str:
    """What a reader should know of an interval of the mean of so many seeds."""
    simulated = nearest(MEAN_BIMODAL, seeds)
    return (
        "Intervals of means are right for scores that are roughly normal. Where a few runs fail altogether (two groups "
        f"of dots), they are too narrow: in simulations with {simulated} seeds they held the mean in "
        f"{MEAN_BIMODAL[simulated]} % of cases instead of 95 %."
    )


def about_summaries(seeds: int) -> str:
    """What a reader should know of a bootstrap interval over environments with so many seeds."""
    simulated = nearest(SUMMARY_NORMAL, seeds)
    return (
        f"Such intervals are too narrow with few seeds: in simulations with {simulated} seeds on ten environments they "
        f"held their target in {SUMMARY_NORMAL[simulated]} % of cases instead of 95 %."
    )


def nearest(table: Mapping[int, int], seeds: int) -> int:
    """The largest simulated number of seeds that is not above, or the smallest one."""
    return max((n for n in table if n <= seeds), default=min(table))
