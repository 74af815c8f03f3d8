"""The report of run directories: figure, data, a table of groups and one of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tremble import escape
from tremble.report import tables
from tremble.report.curves import FRAMES_PER_STEP
from tremble.report.run_curves import WINDOW, RunCurve
from tremble.report.run_figures import draw
from tremble.report.run_groups import Group, group_runs

HEADINGS = ["run", "steps", "hours", "best evaluation", "last evaluation", f"last {WINDOW} of training"]
"""Columns of the table of runs; `row` makes the cells."""
GROUP_HEADINGS = ["agent", "environment", "seeds", "return of", "at step", "mean over seeds [95 %]"]
"""Columns of the table of groups; `group_row` makes the cells."""
ONE_SEED = f"""*Dots: episodes of an evaluation, the line their mean. Thin: mean of {WINDOW} training episodes, with
exploration.*"""
SEVERAL_SEEDS = f"""*Thick: mean over seeds, with its 95 % interval (Student's t), cut off where it leaves the picture.
Thin: single seeds. Where seeds were evaluated at different steps, values between two evaluations are interpolated, and
the mean ends at the last step that all seeds have reached. Without evaluations, a curve is of training: means of
{WINDOW} episodes, with exploration.*"""


def report_curves(curves: Sequence[RunCurve], out: Path) -> str:
    """Figure ``curves.png`` and ``.svg``, ``evaluations.csv`` and ``episodes.csv``; returns a report in markdown.

    Where a group has several seeds, ``means.csv`` has their means.
    """
    groups = group_runs(curves)
    runs = [(group, run) for group in groups for run in group.runs]
    draw(groups, out / "curves")
    columns = ["env", "agent", "group", "seed", "step"]
    tables.write_csv(
        out / "evaluations.csv",
        [*columns, "episode", "return"],
        [
            [*_identity(group, run), step, i, _number(x)]
            for group, run in runs
            for step, returns in run.evaluations
            for i, x in enumerate(returns)
        ],
    )
    tables.write_csv(
        out / "episodes.csv",
        [*columns, "return"],
        [[*_identity(group, run), step, _number(x)] for group, run in runs for step, x in run.episodes],
    )
    several = [group for group in groups if len(group.runs) > 1]
    if several:
        write_means(several, out)
    else:
        (out / "means.csv").unlink(missing_ok=True)  # of other runs, drawn here before
    caption = f"{SEVERAL_SEEDS if several else ONE_SEED} {about_equal(len(curves) - len(runs))}".strip()
    commands = "\n".join(run.command for _, run in runs)
    table = tables.markdown(HEADINGS, [map(escape.markdown, row(run, group)) for group, run in runs])
    return f"""# Learning curves

![curves](curves.png)

{caption}

{_group_table(groups) if several else ""}{table}
```sh
{commands}
```

Hours are those of the clock, evaluations and pauses included.
Raw data: `evaluations.csv`, `episodes.csv`{", `means.csv`" if several else ""}.
"""


def about_equal(left_out: int) -> str:
    """A sentence about runs that are there twice; empty if there are none."""
    if not left_out:
        return ""
    runs = "One run has" if left_out == 1 else f"{left_out:,} runs have"
    return f"{runs} the settings and the seed of another, so the longer one counts."


def _identity(group: Group, run: RunCurve) -> list[object]:
    return [*map(escape.plain, (run.spec["env"], run.spec["agent"], group.name)), run.spec["seed"]]


def _number(value: float) -> str:
    return f"{value:g}" if np.isfinite(value) else ""


def write_means(groups: Sequence[Group], out: Path) -> None:
    """Mean and interval of each group at each step."""
    rows: list[list[object]] = []
    for group in groups:
        band, names = group.band, [escape.plain(x) for x in (group.runs[0].spec["env"], group.panel, group.name)]
        for step, mean, low, high in zip(band.steps, band.mean, band.low, band.high, strict=True):
            rows.append([*names, f"{step:g}", *map(_number, (mean, low, high))])
    tables.write_csv(out / "means.csv", ["env", "panel", "group", "step", "mean", "low", "high"], rows)


def _group_table(groups: Sequence[Group]) -> str:
    return tables.markdown(GROUP_HEADINGS, [map(escape.markdown, group_row(group)) for group in groups], 2) + "\n"


def group_row(group: Group) -> list[str]:
    """One row of the table of groups."""
    kind = "evaluations" if group.evaluated else "training"
    final = group.final()
    shown = ["none yet", "none yet"]
    if final is not None:
        step, interval = final
        shown = [f"{step:,.0f}", interval.text(2 if abs(interval.estimate) < 10 else 1)]
    return [escape.plain(group.name), escape.plain(group.panel), f"{len(group.curves())}", kind, *shown]


def row(curve: RunCurve, group: Group) -> list[str]:
    """One row of the table of runs."""
    frames = f" ({FRAMES_PER_STEP * curve.steps:,} frames)" if curve.spec["env"].startswith("atari/") else ""
    best = last = trained = "none"
    if curve.evaluations:
        steps, means = curve.evaluated()
        top = int(means.argmax()) if len(means) else None
        best = "not finite" if top is None else f"{means[top]:.1f} at step {steps[top]:,.0f}"
        last = f"{curve.means[-1]:.1f}" if np.isfinite(curve.means[-1]) else "not finite"
    if curve.episodes:
        newest = float(np.mean([x for _, x in curve.episodes[-WINDOW:]]))
        trained = f"{newest:.1f}" if np.isfinite(newest) else "not finite"
    hours = "?" if curve.hours is None else f"{curve.hours:.1f}"
    return [
        escape.plain(f"{group.name}, seed {curve.spec['seed']}, {curve.spec['env']}"),
        f"{curve.steps:,}{frames}",
        hours,
        best,
        last,
        trained,
    ]
