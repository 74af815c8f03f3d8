"""All runs of sweeps as tables: one row per run, and the logs of all runs, for pandas, CSV, Parquet and SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tremble import escape
from tremble.records import ROWS, CheckpointError, parse, read_rows, read_text
from tremble.report.run_score import resolved_metric, score
from tremble.settings import SettingsError, import_optional
from tremble.sweep_records import SweepData, SweepRun

if TYPE_CHECKING:
    import pandas as pd

LOGS = tuple(log for log in ROWS if log != "timing")
"""Tables of a query beside `runs`."""
LONG = ("returns", "lengths", "discounted", "truncated", "predicted", "calibration", "not_finite")
"""Columns of evaluations that hold lists; the long tables leave them to the run's own files."""


def run_table(sweeps: Sequence[SweepData]) -> pd.DataFrame:
    """One row per run: what it was, how it ended, its scores, and its settings as ``setting.NAME``."""
    import pandas as pd

    return pd.DataFrame([_row(data, run) for data in sweeps for run in data.runs])


def _row(data: SweepData, run: SweepRun) -> dict[str, Any]:
    cell, outcome = run.cell, run.outcome
    row: dict[str, Any] = {
        "sweep": data.name,
        "cell": cell.label,
        "agent": cell.agent,
        "env": cell.env,
        "seed": run.seed,
        "phase": run.phase,
        "state": run.state,
        "cause": "" if outcome is None else outcome.cause,
        "step": None if outcome is None else outcome.step,
        "metric": None,
        "score": None,
    }
    if outcome is not None and outcome.counts:
        row["metric"] = resolved_metric(run.directory) if data.metric == "auto" else data.metric
        row["score"] = score(run.directory, row["metric"])
    if outcome is not None:
        row |= {"seconds": outcome.seconds, "processor_seconds": outcome.processor_seconds, "host": outcome.host}
        row |= {"tries": outcome.tries, "revision": outcome.revision}
        row |= {f"version.{name}": version for name, version in outcome.versions.items()}
    return row | {"directory": str(run.directory)} | {f"setting.{k}": v for k, v in _settings(run).items()}


def _settings(run: SweepRun) -> dict[str, Any]:
    """Every setting of agent and environment behind the names, as the run resolved them; else those that are given."""
    path = run.directory / "config.json"
    if not path.exists():
        return {**run.cell.agent_options, **{f"env.{k}": v for k, v in run.cell.env_options.items()}}
    described = parse(read_text(path), escape.plain(path))
    settings = described.get("settings") if isinstance(described, dict) else None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{escape.plain(path)} does not describe a run")
    agent, env = settings.get("agent_settings", {}), settings.get("env_settings", {})
    if not (isinstance(agent, dict) and isinstance(env, dict)):
        raise CheckpointError(f"{escape.plain(path)}: agent_settings and env_settings must be mappings")
    flat = {**agent, **{f"env.{name}": value for name, value in env.items()}}
    return {name: value if isinstance(value, int | float | str | None) else str(value) for name, value in flat.items()}


def log_table(sweeps: Sequence[SweepData], log: str) -> pd.DataFrame:
    """All rows of a log, with the run they belong to: ``directory``, ``cell``, ``agent``, ``env``, ``seed``."""
    import pandas as pd

    return pd.DataFrame(list(_log_rows(sweeps, log)))


def _log_rows(sweeps: Sequence[SweepData], log: str) -> Iterator[dict[str, Any]]:
    for data in sweeps:
        for run in data.runs:
            same: dict[str, Any] = {"directory": str(run.directory), "cell": run.cell.label, "agent": run.cell.agent}
            same |= {"env": run.cell.env, "seed": run.seed, "phase": run.phase}
            for row in read_rows(run.directory / f"{log}.jsonl", log):
                yield same | {name: value for name, value in row.items() if name not in LONG}


def query(sweeps: Sequence[SweepData], sql: str) -> pd.DataFrame:
    """The result of a query over the tables runs, metrics, episodes, evaluations and final."""
    with _database(sweeps, [name for name in LOGS if name in sql.lower()]) as (duckdb, connection):
        try:
            found: pd.DataFrame = connection.execute(sql).df()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise SettingsError(f"the query cannot be answered: {first}. Tables: runs, {', '.join(LOGS)}") from error
    return found


def write_parquet(sweeps: Sequence[SweepData], out: Path) -> list[Path]:
    """One Parquet file for each table that has rows; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    with _database(sweeps, LOGS) as (_, connection):
        for (name,) in connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall():
            path = out / f"{name}.parquet"
            connection.table(name).write_parquet(str(path))
            written.append(path)
    return written


@contextmanager
def _database(sweeps: Sequence[SweepData], logs: Sequence[str]) -> Iterator[tuple[Any, Any]]:
    """DuckDB and a database in memory with the tables that have rows."""
    duckdb = import_optional("duckdb", "results")
    connection = duckdb.connect(":memory:")
    tables = {"runs": run_table(sweeps)} | {log: log_table(sweeps, log) for log in logs}
    try:
        for name, table in tables.items():
            if len(table):
                connection.register("given", table)
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
                connection.unregister("given")
        yield duckdb, connection
    finally:
        connection.close()
