"""Results of runs on Atari as tidy curves, and the published scores they can be compared with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tremble.atari.protocols import find_protocol
from tremble.report.curves import COLUMNS
from tremble.report.references import game_name
from tremble.report.scores import Returns
from tremble.settings import SettingsError
from tremble.studies.atari.claims import NO_OPS, QUOTA, STICKY, raw
from tremble.studies.kit import Results
from tremble.training import checkpoint
from tremble.training.spec import RunSpec

SOURCE = "tremble"


@dataclass(frozen=True)
class AtariRun:
    """Scores of whole games in one run, in evaluations and in training."""

    seed: int
    agent: str
    game: str
    """Spelling of papers."""
    protocol: str
    steps: int
    evaluated: list[tuple[int, float]]
    """(step, mean score) of each evaluation."""
    trained: list[tuple[int, float]]
    """(step, mean score of the games that ended since the previous point), as often as evaluations; only where a game ended."""
    final: np.ndarray
    """Scores of the games after training, on other seeds than those of evaluations before."""


def load_run(path: Path, seed: int, spec: RunSpec) -> AtariRun:
    """Read a stored run; raises if it is of another game or protocol."""
    contents = checkpoint.read(path)
    found = RunSpec(**contents.meta["spec"])
    if (found.protocol, found.env) != (spec.protocol, spec.env):
        raise SettingsError(
            f"{path} is of {found.env} under {found.protocol!r}, not of {spec.env} under {spec.protocol!r}: scores under two "
            "protocols do not compare"
        )
    return AtariRun(
        seed,
        spec.agent,
        game_name(spec.env),
        str(spec.protocol),
        spec.steps,
        [(int(row["step"]), float(row["mean"])) for row in contents.meta["evaluations"]],
        windows(contents.meta["episodes"], spec.evaluate_every, spec.steps),
        contents.group("final")["returns"],
    )


def windows(episodes: list[dict[str, Any]], every: int, steps: int) -> list[tuple[int, float]]:
    """Mean return of the training games that ended in each window of ``every`` steps, by the window's last step."""
    found: dict[int, list[float]] = {}
    for episode in episodes:
        found.setdefault((int(episode["step"]) - 1) // every, []).append(float(episode["return"]))
    return [(min((k + 1) * every, steps), float(np.mean(found[k]))) for k in sorted(found)]


def tidy(results: Results) -> pd.DataFrame:
    """All curves in the form of published ones (`report.curves`), evaluation and training in separate rows.

    Where the repeat of an action is random, frames are counted at its longest, as the protocol's own are.
    """
    rows: list[tuple[Any, ...]] = []
    for run in (run for runs in results.values() for run in runs):
        skip = find_protocol(run.protocol).frame_skip_max
        for kind, curve in (("evaluation", run.evaluated), ("training", run.trained)):
            key = (SOURCE, run.protocol, kind, run.agent, run.game, run.seed)
            rows += [(*key, i, step * skip, value) for i, (step, value) in enumerate(curve)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def area(frames: np.ndarray, values: np.ndarray) -> float:
    """Mean height of a curve: the area under it, by the trapezoid rule, over its length."""
    if len(frames) < 2:
        return float(values[0])
    return float(np.trapezoid(values, frames) / (frames[-1] - frames[0]))


def run_scores(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each run and kind of return: best value (and its frame), last value, mean height."""
    rows = []
    keys = ["protocol", "returns", "game", "agent", "seed"]
    for key, curve in curves.groupby(keys, sort=False):
        curve = curve.sort_values("frame")
        frames, values = curve["frame"].to_numpy(), curve["value"].to_numpy()
        top = int(values.argmax())
        rows.append((*key, values[top], int(frames[top]), values[-1], int(frames[-1]), area(frames, values)))
    return pd.DataFrame(rows, columns=[*keys, "best", "best_frame", "last", "last_frame", "area"])


@dataclass(frozen=True)
class PublishedColumn:
    """A column of the paper's tables whose numbers were made under one protocol."""

    table: str
    column: str
    frames: int


_ZOO = {agent: PublishedColumn(NO_OPS, agent, 50_000_000) for agent in ("dqn", "qrdqn", "iqn", "rainbow")}
_DOPAMINE = {agent: PublishedColumn(STICKY, agent, 50_000_000) for agent in ("dqn", "qrdqn", "iqn")}
PUBLISHED: dict[str, dict[str, PublishedColumn]] = {
    "paper": {"pqr": PublishedColumn(NO_OPS, "pqr", 50_000_000), "dltv": PublishedColumn(QUOTA, "dltv", 40_000_000)},
    "paper_sticky": {"pqr": PublishedColumn(STICKY, "pqr", 50_000_000)},
    "dqn_zoo": _ZOO,
    # What Dopamine calls Rainbow has neither double learning nor dueling nor noisy layers.
    "dopamine": _DOPAMINE | {"rainbow_dopamine": PublishedColumn(STICKY, "rainbow", 50_000_000)},
    "paper_v4": {},
}
"""Columns of published best scores by protocol and agent; one table has columns of several code bases and protocols."""


def published_score(protocol: str, agent: str, game: str) -> tuple[float, int] | None:
    """The best score published for an agent under this protocol, and up to which frame; None if there is none."""
    column = PUBLISHED.get(protocol, {}).get(agent)
    if column is None:
        return None
    table, name = raw(column.table, repaired=True), game_name(game)
    if name not in table.index or pd.isna(table.loc[name, column.column]):
        return None
    return float(table.loc[name, column.column]), column.frames


def of_kind(curves: pd.DataFrame, returns: Returns) -> pd.DataFrame:
    """The curves of one kind of return."""
    return curves[curves["returns"] == returns]
