"""What a run writes and reads as JSON: records with a type, rows of logs, and no NaN.

A run directory may come from anybody. Everything in it is read by the functions here (JSON) and by
`tremble.training.checkpoint` (arrays): types, ranges, depth and unknown fields are checked before a value is used, and
whatever does not fit is a `CheckpointError` that names the file and the field.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

DEPTH = 16
"""Levels of nesting in JSON that is read; a run writes at most eight."""


class CheckpointError(RuntimeError):
    """A file of a run cannot be read or written; the message names it and says what to do."""


class WriteError(CheckpointError):
    """A file could not be written: the disk is full or gone, and the run is not to blame."""


class EpisodeRow(msgspec.Struct, rename={"total": "return"}):
    """A row of ``episodes.jsonl``. Returns are null where they were not finite."""

    step: int
    total: float | None
    length: int


class EvaluationRow(msgspec.Struct):
    """The parts of a row of ``evaluations.jsonl`` that commands read."""

    step: int
    mean: float | None
    returns: list[float | None]
    lengths: list[int]


class MetricsRow(msgspec.Struct):
    """The parts that all rows of ``metrics.jsonl`` have; the others are numbers."""

    step: int
    updates: float
    episodes: float


class FinalRow(EvaluationRow):
    """The parts of a row of ``final.jsonl`` that commands read: an evaluation after training."""

    weights: Literal["last", "best"]
    """Of the last step, or of the best evaluation on the way."""
    weights_step: int
    discounted: list[float | None]
    truncated: list[bool]
    predicted: list[list[float | None]]
    """For each episode, quantiles of the return predicted at its start, at evenly spaced midpoints."""


class TimingRow(msgspec.Struct):
    """A row of ``timing.jsonl``."""

    step: int
    seconds: float


ROWS: dict[str, type] = {
    "metrics": MetricsRow,
    "episodes": EpisodeRow,
    "evaluations": EvaluationRow,
    "final": FinalRow,
    "timing": TimingRow,
}
"""What the rows of each log must hold."""


def as_record(value: Any, kind: Any, where: str) -> Any:
    """A JSON value as a ``kind``, such as a dataclass: types and ranges must fit, and there may be no other fields."""
    try:
        record = msgspec.convert(value, kind)
        same = msgspec.json.decode(msgspec.json.encode(record)) == value
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{where} is not as this version writes it: {error}") from error
    if not same:
        raise CheckpointError(f"{where} has missing or unknown fields for this version")
    return record


def parse(text: str | bytes, where: str) -> Any:
    """A JSON value without NaN and infinity, and not nested too deeply."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is damaged or not JSON ({error})") from error
    level = [value]
    for _ in range(DEPTH):
        level = [part for parts in level for part in _parts(parts)]
        if not level:
            return value
    raise CheckpointError(f"{where} is nested more deeply than any run writes")


def read_rows(path: Path, log: str) -> list[dict[str, Any]]:
    """The complete lines of a log, none if there is no file; a running process may have written part of the last."""
    if not path.exists():
        return []
    text = read_text(path)
    rows = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        where = f"{path}, line {number}"
        row = parse(line, where)
        if not isinstance(row, dict):
            raise CheckpointError(f"{where} is not a row of a log")
        check_row(row, ROWS[log], where)
        rows.append(row)
    return rows


def check_row(row: Mapping[str, Any], kind: type, where: str) -> None:
    """Raise unless a row has the fields of ``kind``; it may have more, which are numbers or made of numbers."""
    try:
        msgspec.convert(dict(row), kind)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{where} is not as this version writes it: {error}") from error


def check_array(array: np.ndarray | None, name: str, dtype: Any, shape: tuple[int, ...], low: Any = None) -> np.ndarray:
    """The array, if it has this type and shape and no entry below ``low``; a ValueError otherwise."""
    if array is None or array.dtype != np.dtype(dtype) or array.shape != shape:
        found = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"{name} is {found} instead of {np.dtype(dtype)}{list(shape)}")
    if low is not None and not (array >= low).all():
        raise ValueError(f"{name} has an entry below {low}")
    return array


def read_text(path: Path) -> str:
    """A regular file as text."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CheckpointError(f"{path} is not a regular file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as valid JSON: numbers that are not finite become null, and ``not_finite`` says what they were."""
    lost: dict[str, str] = {}
    clean = {name: _without_nan(value, name, lost) for name, value in row.items()}
    return clean | ({"not_finite": lost} if lost else {})


def _without_nan(value: Any, path: str, lost: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        lost[path] = str(value)
        return None
    if isinstance(value, Mapping):
        return {name: _without_nan(part, f"{path}.{name}", lost) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part, f"{path}.{i}", lost) for i, part in enumerate(value)]
    return value


def _parts(value: Any) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [part for part in found if isinstance(part, dict | list)]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")
