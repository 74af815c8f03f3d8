"""The report of sweeps: one page as HTML and markdown, its figures, and the scores as CSV.

Every number is computed from the directories of the runs when the report is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tremble import escape
from tremble.report import (
    svg,
    sweep_aggregates,
    sweep_calibration,
    sweep_costs,
    sweep_curves,
    sweep_differences,
    sweep_overview,
    sweep_published,
    sweep_scores,
    sweep_search,
    sweep_settings,
    tables,
)
from tremble.report.page import Page, Section
from tremble.report.page_html import page_html
from tremble.report.page_markdown import markdown
from tremble.report.sweep_checks import check_comparable
from tremble.report.sweep_looks import PANELS, counted, looks_of
from tremble.report.sweep_runs import clock
from tremble.report.sweep_table import SweepTable, short_names, sweep_table
from tremble.sweep_records import SweepData

FIGURES = re.compile(r"(scores|curves|settings|aggregates|profiles|reliability)(-\d+)*")
COLUMNS = ["directory", "environment", "agent", "seed", "state", "metric", "score", "seconds", "processor_seconds"]


def write_report(sweeps: Sequence[SweepData], out: Path) -> Path:
    """Write ``report.html``, ``report.md``, ``figures/`` and ``scores.csv`` into a directory; returns the HTML page.

    Scores that were measured in different ways are a SettingsError that says what differs.
    """
    table = sweep_table(sweeps)
    check_comparable(table)
    page = make_page(table)
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.svg"):  # of an earlier report, which may have had more
        if FIGURES.fullmatch(path.stem):
            path.unlink()
    for picture in page.pictures():
        (folder / f"{picture.name}.svg").write_text(svg.alone(picture.svg), encoding="utf-8")
    (out / "report.md").write_text(markdown(page), encoding="utf-8")
    _write_scores(table, out / "scores.csv")
    path = out / "report.html"
    path.write_text(page_html(page), encoding="utf-8")
    return path


def make_page(table: SweepTable) -> Page:
    """All sections."""
    looks = looks_of(table.agents)
    several = len(table.panels) > 1
    results = [sweep_scores.section(table, looks), sweep_aggregates.section(table, looks)]
    many = len(table.panels) > PANELS  # then nobody reads each of them first
    sections: list[Section | None] = [
        sweep_overview.section(table),
        sweep_overview.reading(table, several),
        *(reversed(results) if many else results),
        sweep_differences.section(table),
        sweep_curves.section(table, looks),
        sweep_settings.section(table),
        sweep_search.section(table.sweeps),
        sweep_calibration.section(table, looks),
        sweep_published.section(table),
        sweep_costs.costs(table),
        sweep_costs.commands(table),
    ]
    subtitle = (
        f"{counted(len(table.agents), 'agent')} on {counted(len(table.panels), 'environment')}, "
        f"{counted(len(table.entries), 'run')}. Every number is computed from the files of the runs."
    )
    return Page(sweep_overview.title_of(table.sweeps), subtitle, [section for section in sections if section])


def _write_scores(table: SweepTable, path: Path) -> None:
    """A row for each run, also for those without a score."""
    names = short_names([sweep.directory for sweep in table.sweeps])
    rows = []
    for (agent, panel), entries in table.cells.items():
        for entry in entries:
            seconds, processor = clock(entry) or (None, None)
            score = "" if entry.score is None else repr(entry.score)
            row = [names[entry.source], panel, agent, entry.run.seed, entry.state, entry.metric, score]
            rows.append([*map(escape.plain, row), seconds, processor])
    tables.write_csv(path, COLUMNS, rows)
