"""The one table, three times: on the screen, as RESULTS.md, and with every raw number as results.json."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.compare import Comparison, Part

BUSY = 0.1
"""Cores taken by other programs beyond which absolute numbers, and ratios between one thread and many, mislead."""
RATIO_HELP = (
    "Ratio: how many times as fast *this* is as *that*; a ratio of medians over interleaved rounds, with a 95 % "
    "bootstrap interval."
)


def show(console: Console, machine: dict[str, Any], parts: list[Part]) -> None:
    """Print the table and its notes."""
    table = Table(title="tremble beside its peers", title_justify="left", header_style="bold")
    for name in ("case", "this", "median", "that", "median", "ratio", "95 %"):
        table.add_column(name, justify="left" if name in ("case", "this", "that") else "right")
    for part in parts:
        table.add_section()
        table.add_row(f"[bold]{part.title}[/]")
        for line in part.comparisons:
            table.add_row(
                f"  {line.case}",
                line.this,
                _number(line.this_median, line),
                line.that,
                _number(line.that_median, line),
                f"[bold]{_ratio(line.ratio)}[/]",
                f"{_ratio(line.low)} to {_ratio(line.high)}",
            )
    console.print(table)
    console.print(RATIO_HELP.replace("*", ""), style="dim")
    console.print(f"During the run {_others(machine).replace('**', '')}.", highlight=False)
    for part in parts:
        for note in part.notes:
            console.print(f"[bold]{part.name}[/]: {note}", highlight=False)


def write(directory: Path, machine: dict[str, Any], parts: list[Part], command: str) -> list[Path]:
    """RESULTS.md and results.json."""
    directory.mkdir(parents=True, exist_ok=True)
    page, data = directory / "RESULTS.md", directory / "results.json"
    page.write_text(_markdown(machine, parts, command), encoding="utf-8")
    content = {"command": command, "machine": machine, "parts": [asdict(part) for part in parts]}
    data.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return [page, data]


def earlier(directory: Path, measured: list[str]) -> list[Part]:
    """The parts of a directory's results that were not measured again; each says when it was."""
    data = directory / "results.json"
    if not data.exists():
        return []
    content = json.loads(data.read_text(encoding="utf-8"))
    when = f"Measured earlier than the other parts: {content['machine']['date']}; {_others(content['machine'])}."
    kept = []
    for fields in content["parts"]:
        if fields["name"] in measured:
            continue
        notes = fields["notes"] + [when] * (not any(note.startswith("Measured earlier") for note in fields["notes"]))
        kept.append(
            Part(**(fields | {"comparisons": [Comparison(**c) for c in fields["comparisons"]], "notes": notes}))
        )
    return kept


def _markdown(machine: dict[str, Any], parts: list[Part], command: str) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        "# Results",
        "",
        f"Written by `{command}` on {machine['date']}; what is measured, and how, is in [README.md](README.md).",
        "",
        f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; meanwhile {_others(machine)}.",
        f"Versions: {versions}.",
        "",
        RATIO_HELP,
        "",
        "| case | this | median | that | median | ratio | 95 % |",
        "|---|---|--:|---|--:|--:|--:|",
    ]
    for part in parts:
        lines.append(f"| **{part.title}** | | | | | | |")
        lines += [
            f"| {c.case} | {c.this} | {_number(c.this_median, c)} | {c.that} | {_number(c.that_median, c)} "
            f"| **{_ratio(c.ratio)}** | {_ratio(c.low)} to {_ratio(c.high)} |"
            for c in part.comparisons
        ]
    for part in parts:
        lines += ["", f"**{part.title}**", ""] + [f"- {note}" for note in part.notes]
    return "\n".join(lines) + "\n"


def _others(machine: dict[str, Any]) -> str:
    """What the rest of the machine did during the run."""
    busy = machine["others_busy_cores"]
    if busy is None:
        return f"the load before the run was {machine['load_before']}"
    warning = ": **too busy to quote these numbers**" if busy > BUSY else ""
    return f"other programs kept {busy:.2f} cores busy{warning}"


def _number(value: float, line: Comparison) -> str:
    return f"{value:,.0f} {line.unit}" if value >= 100 else f"{value:.3g} {line.unit}"


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 2 else f"{value:.3f}"
