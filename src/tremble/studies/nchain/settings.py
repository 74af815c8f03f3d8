"""Agents, published numbers and claims that the N-Chain studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval, verdict
from tremble.studies.kit import Options
from tremble.sweep_records import Cell

AGENTS = ("qrdqn", "dltv", "p_dltv", "pqr")
"""The four agents of the paper."""

PAIRS = ((8, 10), (7, 11), (6, 12), (5, 13), (4, 14), (3, 15), (2, 16), (1, 17))
"""Means of the right end's two Gaussians; their mean is 9 throughout."""

PAPER_COUNTS: dict[str, tuple[int, ...]] = {
    "qrdqn": (12293, 11381, 11827, 12108, 10041, 11419, 9696, 11619),
    "dltv": (9997, 9172, 9646, 9251, 7941, 6964, 7896, 7257),
    "p_dltv": (14344, 14497, 13769, 15507, 14469, 14034, 14068, 13404),
    "pqr": (14546, 15018, 14693, 15142, 15361, 13859, 14602, 14354),
}
"""The paper's appendix table: total counts of the optimal action, mean of 4 seeds, one column per pair."""

MAIN_PAIR = (5, 13)

CLAIMS = (
    ("pqr", "qrdqn"),
    ("pqr", "dltv"),
    ("p_dltv", "qrdqn"),
    ("p_dltv", "dltv"),
    ("qrdqn", "dltv"),
    ("pqr", "p_dltv"),
)
"""Ordered pairs of agents whose difference the paper's numbers imply."""


def published(agent: str, pair: tuple[int, int] = MAIN_PAIR) -> int:
    """The paper's count."""
    return PAPER_COUNTS[agent][PAIRS.index(pair)]


def main_cells(options: Options) -> list[Cell]:
    """The four agents at the paper's settings."""
    return [Cell(agent, agent) for agent in AGENTS]


def minus(first: str, second: str) -> str:
    """Name of a difference of two agents."""
    return f"{figures.NAMES[first]} − {figures.NAMES[second]}"


def verdict_table(counts: Mapping[str, Mapping[int, float]], pairs: Sequence[tuple[int, int]], options: Options) -> str:
    """A row per claim: the paper's difference, averaged over pairs of means, ours with its interval, and the verdict."""
    rows = []
    for first, second in CLAIMS:
        theirs = float(np.mean([published(first, pair) - published(second, pair) for pair in pairs]))
        ours = difference_interval(counts[first], counts[second])
        said = verdict(ours, theirs, quick=options.quick)
        rows.append([minus(first, second), f"{theirs:+,.0f}", ours.text(), f"**{said}**"])
    return tables.markdown(["difference", "paper", "ours [95 %]", "verdict"], rows)
