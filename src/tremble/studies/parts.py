"""What analyses are made of: runs as CSV, means and differences over seeds, curves and error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import Interval, difference_interval, mean_band, mean_interval
from tremble.studies.kit import Results
from tremble.sweep_records import Cell

ANY = (-np.inf, np.inf)


def evaluated_cell(
    label: str,
    agent: str,
    env: str,
    steps: int,
    agent_options: dict[str, Any] | None = None,
    *,
    hyperparameters: str | None = None,
    evaluations: int = 20,
    episodes: int = 10,
) -> Cell:
    """A cell whose runs are evaluated so often on the way, and on 100 episodes at the end."""
    run = {"evaluate_every": max(1000, steps // evaluations), "evaluate_episodes": episodes, "record_every": 1000}
    return Cell(label, agent, env, agent_options or {}, {}, hyperparameters, run | {"final_episodes": 100}, steps)


def values(runs: Sequence[Any], name: str) -> list[Any]:
    """A number of each run; ``name`` is an attribute, or a path of them: ``final.mean``."""
    return [attrgetter(name)(run) for run in runs]


def over_seeds(runs: Sequence[Any], name: str, between: tuple[float, float] = ANY) -> Interval:
    """Its mean over runs."""
    return mean_interval(values(runs, name), between=between)


def by_seed(runs: Sequence[Any], name: str) -> dict[int, Any]:
    """The same number by seed."""
    return dict(zip(values(runs, "seed"), values(runs, name), strict=True))


def difference(first: Sequence[Any], second: Sequence[Any], name: str) -> Interval:
    """Mean over the common seeds of the first runs' number minus the second's."""
    return difference_interval(by_seed(first, name), by_seed(second, name))


def seed_count(results: Results) -> str:
    """Number of seeds of a cell, or its range over cells: ``3`` or ``2–3``."""
    counts = [len(runs) for runs in results.values()]
    return "–".join(str(n) for n in sorted({min(counts), max(counts)}))


def write_runs(path: Path, results: Results, columns: Mapping[str, str], cell: Sequence[str] = ("cell",)) -> None:
    """Raw data: a row for each run. A column is a number of the run with its format, such as ``final.mean:.3f``.

    Labels are cut at `` | `` into as many columns as ``cell`` names.
    """
    fields = [text.partition(":") for text in columns.values()]
    rows = [
        [*_cut(label, cell), run.seed, *(format(attrgetter(name)(run), spec) for name, _, spec in fields)]
        for label, runs in results.items()
        for run in runs
    ]
    tables.write_csv(path, [*cell, "seed", *columns], rows)


def write_curves(
    path: Path, results: Results, steps: str, columns: Mapping[str, str], cell: Sequence[str] = ("cell",)
) -> None:
    """Raw data over time: a row for each run and step. Columns are arrays of the run with the format of an entry."""
    fields, rows = [text.partition(":") for text in columns.values()], []
    for label, runs in results.items():
        for run in runs:
            arrays = [attrgetter(name)(run) for name in (steps, *(name for name, _, _ in fields))]
            for step, *numbers in zip(*arrays, strict=True):
                shown = [
                    "" if np.isnan(x) else format(x, spec) for x, (_, _, spec) in zip(numbers, fields, strict=True)
                ]
                rows.append([*_cut(label, cell), run.seed, int(step), *shown])
    tables.write_csv(path, [*cell, "seed", "step", *columns], rows)


def _cut(label: str, cell: Sequence[str]) -> list[str]:
    return label.split(" | ", len(cell) - 1)


def draw_seeds(
    axis: Any,
    steps: Any,
    curves: Any,
    colour: str | None = None,
    *,
    label: str | None = None,
    width: float = 2.2,
    band: bool = False,
) -> None:
    """Curves ``[seeds, steps]``: the mean, single seeds thin, and the 95 % interval of the mean if ``band``.

    NaN where a seed has no value yet.
    """
    steps, curves = np.asarray(steps), np.asarray(curves, float)
    known = np.isfinite(curves).any(0)
    mean = np.nanmean(curves[:, known], 0)
    (line,) = axis.plot(steps[known], mean, color=colour, linewidth=width, label=label)
    if len(curves) > 1:
        axis.plot(steps, curves.T, color=line.get_color(), alpha=0.3, linewidth=0.8)
        if band:
            _, low, high = mean_band(curves)
            axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    figures.thousands(axis.xaxis)


def error_bar(axis: Any, interval: Interval, at: float, colour: str, *, across: bool = False) -> None:
    """An estimate with its interval, at a place of the x axis; ``across``: of the y axis."""
    error = [[length] for length in interval.errors]
    place = (
        {"x": interval.estimate, "y": at, "xerr": error} if across else {"x": at, "y": interval.estimate, "yerr": error}
    )
    axis.errorbar(**place, color=colour, fmt="o", capsize=3, markersize=5)
