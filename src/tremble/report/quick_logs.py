"""Logs of many runs, read quickly: whole files at a time, with the types of their rows checked while they are parsed.

`tremble.records.read_rows` returns every field of each row; here only the fields that are asked for are kept, which is
some twenty times as fast.
"""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tremble import escape
from tremble.records import CheckpointError


class Evaluation(msgspec.Struct):
    """What curves need of a row of ``evaluations.jsonl``."""

    step: int
    mean: float | None
    returns: list[float | None]


class Calibration(msgspec.Struct):
    """Predicted against happened returns of one evaluation (`tremble.training.evaluation`)."""

    w1: float | None = None
    mean_predicted: float | None = None
    mean_happened: float | None = None
    coverage: dict[str, float | None] = {}
    truncated: float | None = None


class Final(Evaluation):
    """What scores and calibration need of a row of ``final.jsonl``."""

    weights: str
    weights_step: int
    calibration: Calibration | None = None


def read_log(directory: Path, log: str, kind: Any) -> list[Any]:
    """The complete lines of a log as records of a type that msgspec knows; none if there is no file."""
    path = directory / f"{log}.jsonl"
    data = _bytes(path)
    whole = data[: data.rfind(b"\n") + 1]
    try:
        return _decoder(kind).decode_lines(whole)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:  # a ValidationError is a DecodeError
        raise CheckpointError(f"{escape.plain(path)} is not as this version writes it: {error}") from error


def has_rows(directory: Path, log: str) -> bool:
    """Whether a log has at least one complete line; reads no more than that."""
    path = directory / f"{log}.jsonl"
    return b"\n" in _bytes(path, 1 << 16) or b"\n" in _bytes(path)


def final_row(directory: Path, weights: str) -> Final | None:
    """The evaluation after training of the newest end of the run: of ``last`` or ``best`` weights."""
    rows: list[Final] = read_log(directory, "final", Final)
    newest = max((row.step for row in rows), default=0)
    found = [row for row in rows if row.step == newest and row.weights == weights]
    return found[-1] if found else None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _bytes(path: Path, most: int = -1) -> bytes:
    """The start of a regular file; nothing if there is none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CheckpointError(f"{escape.plain(path)} is not a regular file")
        with path.open("rb") as file:
            return file.read(most)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CheckpointError(f"{escape.plain(path)} cannot be read: {error}") from error
