"""Read the directory of a run: its settings and its logs. A run that is still training can be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tremble import escape
from tremble.records import ROWS, CheckpointError, check_row, parse, read_rows, read_text
from tremble.settings import SettingsError

Rows = list[dict[str, Any]]


class SpecFields(msgspec.Struct):
    """The fields of a run's settings that reports read."""

    agent: str
    env: str
    steps: int
    seed: int
    hyperparameters: str | None
    agent_options: dict[str, Any]
    env_options: dict[str, Any]
    n_envs: int
    parallel: bool
    record_every: int
    evaluate_every: int
    evaluate_episodes: int
    evaluate_steps: int
    evaluate_env: str | None
    final_episodes: int = 0
    """Runs of earlier versions do not have it."""


class SettingsBehind(msgspec.Struct):
    """The parts of the settings behind the names that reports read; other fields are left as they are."""

    agent_settings: dict[str, Any] = {}
    env_settings: dict[str, Any] = {}


class Described(msgspec.Struct):
    """Where those are in the file."""

    settings: SettingsBehind


@dataclass(frozen=True)
class RunLogs:
    """Settings and logs, each log a list of rows and empty where the run wrote none."""

    directory: Path
    spec: dict[str, Any]
    """The fields of `RunSpec`."""
    settings: dict[str, Any]
    """Every setting behind the names, as `RunSpec.describe` has it; empty where a run did not write it."""
    metrics: Rows
    episodes: Rows
    """One row for each training episode."""
    evaluations: Rows
    final: Rows
    """Evaluations after training: of the last weights, and of the best. Rows with the largest step count."""
    timing: Rows


def read_settings(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of `RunSpec` in ``config.json``, and the whole file."""
    config = directory / "config.json"
    if not config.exists():
        raise SettingsError(f"{escape.plain(directory)} is not the directory of a run: it has no config.json")
    described = parse(read_text(config), escape.plain(config))
    spec = described.get("spec") if isinstance(described, dict) else None
    if not isinstance(spec, dict):
        raise CheckpointError(f"{escape.plain(config)} does not describe a run")
    check_row(spec, SpecFields, f"{escape.plain(config)}: spec")
    spec = dict[str, Any](final_episodes=0) | spec
    if spec["env"] == "custom" and isinstance(described.get("env_name"), str):
        spec = spec | {"env": described["env_name"], "from_python": True}  # a function, or a ready-made environment
    return spec, described


def read_run(directory: Path | str) -> RunLogs:
    """``config.json`` and the ``.jsonl`` files of a run."""
    directory = Path(directory)
    spec, described = read_settings(directory)
    settings = described.get("settings", {})
    check_row({"settings": settings}, Described, escape.plain(directory / "config.json"))
    return RunLogs(directory, spec, settings, **{log: read_rows(directory / f"{log}.jsonl", log) for log in ROWS})
