"""Tables as markdown and CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def markdown(header: Sequence[str], rows: Iterable[Iterable[Any]], numeric_from: int = 1) -> str:
    """A markdown table, columns from ``numeric_from`` on aligned right."""
    align = ["---" if i < numeric_from else "---:" for i in range(len(header))]
    lines: list[Iterable[Any]] = [header, align, *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def number(value: float, digits: int = 0) -> str:
    """For a cell: words where the value is not finite, as the predictions of an agent that has diverged."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "not finite"


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write raw data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of such a file, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
