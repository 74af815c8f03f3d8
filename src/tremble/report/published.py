"""Published best scores on Atari by protocol and agent, to stand beside runs that were measured in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd

from tremble.report.curves import FRAMES_PER_STEP, protocol_of
from tremble.report.references import all_provenance, game_name, load_reference

NO_OPS, STICKY, QUOTA = "atari55_noop_50m", "atari55_sticky_50m", "atari49_noop_40m"


@dataclass(frozen=True)
class Column:
    """A column of a printed table whose numbers were made under one protocol."""

    table: str
    column: str
    frames: int
    returns: Literal["evaluation", "training"]
    """What is averaged: games of an evaluation, or games of training with exploration."""


_ZOO = {agent: Column(NO_OPS, agent, 50_000_000, "evaluation") for agent in ("dqn", "qrdqn", "iqn", "rainbow")}
_DOPAMINE = {agent: Column(STICKY, agent, 50_000_000, "training") for agent in ("dqn", "qrdqn", "iqn")}
COLUMNS: Mapping[str, Mapping[str, Column]] = MappingProxyType(
    {
        "paper": {
            "pqr": Column(NO_OPS, "pqr", 50_000_000, "evaluation"),
            "dltv": Column(QUOTA, "dltv", 40_000_000, "evaluation"),
        },
        "paper_sticky": {"pqr": Column(STICKY, "pqr", 50_000_000, "evaluation")},
        "dqn_zoo": _ZOO,
        # What Dopamine calls Rainbow has neither double learning nor dueling nor noisy layers.
        "dopamine": _DOPAMINE | {"rainbow_dopamine": Column(STICKY, "rainbow", 50_000_000, "training")},
    }
)
"""By protocol and agent."""


@dataclass(frozen=True)
class Printed:
    """A printed score, and why it does not stand beside a run, if it does not."""

    score: float
    column: Column
    obstacles: list[str]

    @property
    def source(self) -> str:
        """Where it is printed."""
        return all_provenance()[self.column.table]["title"]


def printed_score(spec: Mapping[str, Any], metric: str) -> Printed | None:
    """The score printed for the agent and game of a run under its protocol; None if there is none."""
    if not spec["env"].startswith("atari/"):
        return None
    column = COLUMNS.get(protocol_of(spec), {}).get(spec["agent"])
    if column is None:
        return None
    game, scores = game_name(spec["env"]), load_reference(column.table)
    if game not in scores.index or (column.table, game) in _EXCHANGED or pd.isna(scores.loc[game, column.column]):
        return None
    frames = spec["steps"] * FRAMES_PER_STEP
    obstacles = []
    if frames != column.frames:
        obstacles.append(f"it is for {column.frames:,} frames, these runs have {frames:,}")
    if column.returns != "evaluation" or metric != "best_evaluation":
        kind = "evaluation" if column.returns == "evaluation" else "mean over games of training"
        obstacles.append(f"it is the best {kind}, these scores are by the metric {metric!r}")
    if spec["agent_options"] or spec["hyperparameters"] not in (None, "atari"):
        obstacles.append("these runs have settings of their own")
    return Printed(float(scores.loc[game, column.column]), column, obstacles)


_EXCHANGED = {(STICKY, "Enduro")}
"""Cells in which the printed numbers of two agents are exchanged."""
