"""The section of published scores: beside ours where they were measured in the same way, else why they are not."""

from __future__ import annotations

from tremble.report.page import Block, Section, Table, Text, folded_if_long
from tremble.report.published import Printed, printed_score
from tremble.report.references import all_provenance
from tremble.report.statistics import mean_interval
from tremble.report.sweep_looks import between, digits_of, listed, shown
from tremble.report.sweep_table import SweepTable
from tremble.settings import SettingsError


def section(table: SweepTable) -> Section | None:
    """Published scores; None where no environment is a game of Atari."""
    if not any(entry.run.cell.env.startswith("atari/") for entry in table.entries):
        return None
    comparable: list[tuple[str, str, Printed]] = []
    refused: dict[str, list[str]] = {}
    unknown: list[str] = []
    for agent, panel in table.cells:
        printed = _printed(table, agent, panel)
        if printed is None:
            unknown.append(f"{agent} on {panel}")
        elif printed.obstacles:
            refused.setdefault("; ".join(printed.obstacles), []).append(f"{agent} on {panel}")
        else:
            comparable.append((agent, panel, printed))
    blocks: list[Block] = []
    if comparable:
        blocks.append(folded_if_long(_table(table, comparable)))
    for reason, names in refused.items():
        text = f"A score is published under this protocol for {listed(names)}, but it is not shown: {reason}."
        blocks.append(Text(text))
    if unknown:
        text = f"No score under this protocol is known for {listed(unknown)}."
        blocks.append(Text(f"{text} Scores under other protocols do not compare."))
    return Section("Published scores", blocks)


def _printed(table: SweepTable, agent: str, panel: str) -> Printed | None:
    spec = next((entry.spec for entry in table.cells[agent, panel] if entry.spec is not None), None)
    if spec is None:
        return None
    try:
        return printed_score(spec, table.metric(panel))
    except SettingsError:  # a game that no table has
        return None


def _table(table: SweepTable, comparable: list[tuple[str, str, Printed]]) -> Table:
    rows = []
    for agent, panel, printed in comparable:
        interval = mean_interval(table.values(agent, panel))
        digits = digits_of([interval.estimate, printed.score])
        inside = "–" if interval.n < 2 else "yes" if interval.low <= printed.score <= interval.high else "no"
        row = [panel, agent, table.seeds(agent, panel), shown(interval.estimate, digits), between(interval, digits)]
        rows.append([*row, f"{printed.score:,.1f}", inside, printed.source])
    sources = dict.fromkeys(printed.column.table for *_, printed in comparable)
    entries = [all_provenance()[name] for name in sources]
    conditions = " ".join(f"{entry['title']}: {entry['condition']}." for entry in entries)
    header = ["environment", "agent", "seeds", "mean", "95 %", "published", "inside the interval", "printed in"]
    caption = f"Published scores beside ours, of one protocol and length. As printed, without an interval. {conditions}"
    return Table(caption, header, rows, 2)
