"""How a sweep stands, as tables for the terminal."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tremble import escape
from tremble.report.run_score import in_words, score
from tremble.report.statistics import mean_interval
from tremble.sweep_records import FAILURES, RESULTS, SweepData, SweepRun
from tremble.training import lock

LIVE_SECONDS = 3.0
SHOWN = 60
"""Cells that the table lists."""
MOST_SCORED = 2_000
"""Runs whose scores are read; a larger sweep has them in its report."""


def status_tables(data: SweepData) -> RenderableType:
    """A table of cells, what runs now, and the failures."""
    by_cell: dict[tuple[str, str], list[SweepRun]] = {}
    for run in data.runs:
        if run.phase == "test":
            by_cell.setdefault((run.cell.label, run.cell.env), []).append(run)
    parts: list[RenderableType] = [_cells(data, by_cell)] if by_cell else []
    if data.trials:
        parts.append(_trials(data))
    if any(run.running for run in data.runs):
        parts.append(_running([run for run in data.runs if run.running]))
    for run in [run for run in data.runs if run.state in FAILURES][:SHOWN]:
        assert run.outcome is not None
        about = f"{run.cell.label}, seed {run.seed}: {run.state} at step {run.outcome.step:,}: {run.outcome.cause}"
        parts.append(Text(escape.plain(about), style="red"))
    counts = Counter(run.state for run in data.runs)
    parts.append(Text(", ".join(f"{n:,} {state}" for state, n in counts.most_common()) or "no runs yet"))
    return Group(*parts)


def _cells(data: SweepData, by_cell: dict[tuple[str, str], list[SweepRun]]) -> Table:
    done = [run for run in data.runs if run.state in RESULTS]
    scored = len(done) <= MOST_SCORED
    heading = f"{data.metric if data.metric != 'auto' else 'score'} [95 %]"
    table = Table("cell", "done", "running", "waiting", "failed", heading, title=escape.console(data.name))
    for (label, _), runs in list(by_cell.items())[:SHOWN]:
        counts = Counter(run.state for run in runs)
        failed = sum(counts[state] for state in FAILURES)
        results = [run for run in runs if run.state in RESULTS]
        scores = (
            [value for run in results if (value := score(run.directory, data.metric)) is not None] if scored else []
        )
        table.add_row(
            Text(escape.plain(label)),
            f"{len(results)} of {len(runs)}",
            *(str(n) if n else "" for n in (counts["running"], counts["waiting"], failed)),
            mean_interval(scores).text(_digits(scores)) if scores else "",
        )
    if len(by_cell) > SHOWN:
        table.caption = f"and {len(by_cell) - SHOWN:,} more cells: tremble report has all"
    elif data.metric not in ("auto",):
        table.caption = escape.console(in_words(data.metric))
    return table


def _digits(scores: list[float]) -> int:
    return 3 if max(map(abs, scores)) < 10 else 1


def _trials(data: SweepData) -> Table:
    cells: dict[tuple[str, str], list[Any]] = {}
    for trial in data.trials:
        cells.setdefault((trial.agent, trial.env), []).append(trial)
    table = Table("search", "trials", "scored", "failed", "best", "settings", title=escape.console(data.search))
    for (agent, env), trials in cells.items():
        scored = [trial for trial in trials if trial.score is not None]
        best = max(scored, key=lambda trial: trial.score, default=None)
        shown = (
            ""
            if best is None
            else ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in best.settings.items())
        )
        table.add_row(
            Text(escape.plain(f"{agent} on {env}")),
            str(len(trials)),
            str(len(scored)),
            str(sum(trial.state == "failed" for trial in trials)),
            "" if best is None else f"{best.score:,.4g}",
            Text(escape.plain(shown + (" (trained with test seeds)" if best is not None and best.won else ""))),
        )
    return table


def _running(runs: list[SweepRun]) -> Table:
    table = Table("running", "seed", "step", "doing", "on", title="Now")
    for run in runs[:SHOWN]:
        said = lock.progress(run.directory)
        step = said.get("step")
        cells = [run.cell.label, run.seed, f"{step:,}" if isinstance(step, int) else "", said.get("doing", "")]
        host = str(said.get("machine", "")).partition("/")[0]
        table.add_row(*(Text(escape.plain(cell)) for cell in [*cells, f"{host} {said.get('pid', '')}"]))
    return table


def wait_for_change() -> None:
    """Between two looks of a live table."""
    time.sleep(LIVE_SECONDS)
