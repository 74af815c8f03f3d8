"""The score of a run: one number, read from its logs.

metric            | number
------------------|-----------------------------------------------------------------------------------
`final`           | mean return of the evaluation after training, last weights
`best`            | the same of the best weights; of the last weights if these are the best
`evaluations`     | mean over the evaluations during training: the height of the learning curve
`best_evaluation` | largest mean of an evaluation during training, as papers on Atari publish it
`training`        | mean return of the last tenth of the training episodes
another word      | that column of ``metrics.jsonl``, mean over its rows, such as `optimal_share`
`auto`            | the first that the run has: `final`, `evaluations`, `optimal_share`, `training`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tremble.records import EpisodeRow
from tremble.report.quick_logs import Evaluation, final_row, has_rows, read_log
from tremble.settings import SettingsError, nearest

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "final": "mean return of the evaluation after training, with the last weights",
        "best": "mean return of the evaluation after training, with the weights of the best evaluation during training",
        "evaluations": "mean over the evaluations during training of their mean return",
        "best_evaluation": "the largest mean return of an evaluation during training",
        "training": "mean return of the last tenth of the training episodes",
    }
)
"""What each metric is, in words."""


def in_words(metric: str) -> str:
    """What a metric is, as a sentence without its full stop."""
    return METRICS.get(metric, f"mean over training of the column {metric} of metrics.jsonl")


def resolved_metric(directory: Path | str) -> str:
    """What ``auto`` stands for with the run in a directory."""
    directory = Path(directory)
    for metric, log in (("final", "final"), ("evaluations", "evaluations")):
        if has_rows(directory, log):
            return metric
    rows: list[dict[str, Any]] = read_log(directory, "metrics", dict[str, Any])
    return "optimal_share" if rows and "optimal_share" in rows[-1] else "training"


def score(directory: Path | str, metric: str = "auto") -> float | None:
    """The score of a run by a metric; None where it has no such number, or one that is not finite.

    A metric that no file has is a SettingsError with the nearest name.
    """
    directory = Path(directory)
    if metric == "auto":
        metric = resolved_metric(directory)
    value = _SCORES[metric](directory) if metric in _SCORES else _column(directory, metric)
    return value if value is not None and math.isfinite(value) else None


def _final(directory: Path) -> float | None:
    row = final_row(directory, "last")
    return None if row is None else row.mean


def _best(directory: Path) -> float | None:
    row = final_row(directory, "best") or final_row(directory, "last")
    return None if row is None else row.mean


def _evaluated(directory: Path) -> np.ndarray:
    """Means of the evaluations, NaN where one was not finite."""
    return np.array([row.mean for row in read_log(directory, "evaluations", Evaluation)], float)


def _evaluations(directory: Path) -> float | None:
    means = _evaluated(directory)
    return float(means.mean()) if len(means) else None


def _best_evaluation(directory: Path) -> float | None:
    means = _evaluated(directory)
    means = means[np.isfinite(means)]
    return float(means.max()) if len(means) else None


def _training(directory: Path) -> float | None:
    totals = np.array([row.total for row in read_log(directory, "episodes", EpisodeRow)], float)
    return float(totals[-math.ceil(len(totals) / 10) :].mean()) if len(totals) else None


def _column(directory: Path, name: str) -> float | None:
    """Mean of a column of the metrics, from its first number on: some columns begin when learning does."""
    rows: list[dict[str, Any]] = read_log(directory, "metrics", dict[str, Any])
    known = {column for row in rows for column, value in row.items() if isinstance(value, int | float)}
    if rows and not any(name in row for row in rows):
        raise SettingsError(f"there is no metric {name!r}; {nearest(name, [*METRICS, 'auto', *sorted(known)])}")
    values = np.array([_number(row.get(name)) for row in rows], float)
    begun = np.flatnonzero(~np.isnan(values))
    return float(values[begun[0] :].mean()) if len(begun) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


_SCORES: Mapping[str, Callable[[Path], float | None]] = MappingProxyType(
    {
        "final": _final,
        "best": _best,
        "evaluations": _evaluations,
        "best_evaluation": _best_evaluation,
        "training": _training,
    }
)
