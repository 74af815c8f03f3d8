"""Read the directory of a run: its settings and its logs. A run that is still training can be read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tremble.settings import SettingsError

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class RunLogs:
    """Settings and logs, each log a list of rows and empty where the run wrote none."""

    directory: Path
    spec: dict[str, Any]
    """The fields of `RunSpec`."""
    metrics: Rows
    episodes: Rows
    """One row for each training episode."""
    evaluations: Rows
    timing: Rows


def read_run(directory: Path | str) -> RunLogs:
    """``config.json`` and the ``.jsonl`` files of a run."""
    directory = Path(directory)
    config = directory / "config.json"
    if not config.exists():
        raise SettingsError(f"{directory} is not the directory of a run: it has no config.json")
    spec = json.loads(config.read_text(encoding="utf-8"))["spec"]
    logs = (_rows(directory / f"{log}.jsonl") for log in ("metrics", "episodes", "evaluations", "timing"))
    return RunLogs(directory, spec, *logs)


def _rows(path: Path) -> Rows:
    """Complete lines only: a running or killed process may have written part of the last one."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
