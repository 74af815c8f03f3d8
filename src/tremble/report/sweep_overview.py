"""The head of a report: what was run, what became of each run, and how to read the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tremble.report.interval_coverage import about_means
from tremble.report.page import Block, Folded, Items, Section, Table, Text
from tremble.report.run_score import METRICS, in_words
from tremble.report.sweep_checks import spec_of
from tremble.report.sweep_looks import counted, listed
from tremble.report.sweep_runs import Entry
from tremble.report.sweep_table import SweepTable, short_names
from tremble.sweep_records import SweepData

STATES = ("finished", "stopped", "without a score", "failed", "diverged", "timed out", "running", "waiting")
NAMED = 25
"""Runs without a score that are named at once; the others after a click."""


def section(table: SweepTable) -> Section:
    """What was run."""
    facts = Table("From the files of the runs.", ["what", "value"], _facts(table), 2)
    blocks: list[Block] = [Text(_states(table.entries)), facts]
    blocks += _directories(table)
    stopped = [entry for entry in table.entries if entry.state == "stopped"]
    if stopped:
        runs = counted(len(stopped), "run was", "runs were")
        blocks.append(Text(f"{runs} ended early by a callback, on purpose: a result, of the steps that were made."))
    blocks += _unscored(table)
    if table.twice:
        runs = listed([f"{e.run.cell.agent} on {e.run.cell.env}, seed {e.run.seed}" for e in table.twice])
        blocks.append(Text(f"Settings and seed of another run, which counts in their place: {runs}.", warning=True))
    return Section("What was run", blocks)


def _states(entries: Sequence[Entry]) -> str:
    """A line of counts."""
    found = Counter(entry.state for entry in entries)
    parts = [f"{found[state]:,} {state}" for state in STATES if found[state]]
    return f"{counted(len(entries), 'run')}: {', '.join(parts)}."


def _facts(table: SweepTable) -> list[list[str]]:
    """Rows of a table of two columns."""
    seeds = sorted({entry.run.seed for entry in table.entries})
    rows = [
        ["agents", listed(table.agents, 12)],
        ["environments", listed(table.panels, 12)],
        ["seeds", f"{_ranges(seeds)} ({len(seeds)})"],
    ]
    rows += [["length", text] for text in _by_panel(table, _length)]
    rows += [["score of a run", text] for text in _by_panel(table, _metric)]
    rows += [["evaluation", text] for text in _by_panel(table, _evaluation)]
    versions = Counter(_versions(entry) for entry in table.entries if entry.run.outcome is not None)
    for text, number in versions.items():
        rows.append(["versions", f"{text}: {counted(number, 'run')}" if len(versions) > 1 else text])
    hosts = sorted({entry.run.outcome.host for entry in table.entries if entry.run.outcome is not None})
    rows += [["machines", listed(hosts)]] if any(hosts) else []
    ended = _ended(table.entries)
    rows += [["runs ended", ended]] if ended else []
    return rows


def _by_panel(table: SweepTable, say: Any) -> list[str]:
    """What is said of each environment: once where it is the same for all of them."""
    found: dict[str, list[str]] = {}
    for panel in table.panels:
        text = say(table, panel)
        if text:
            found.setdefault(text, []).append(panel)
    return [text if len(found) == 1 else f"{listed(panels)}: {text}" for text, panels in found.items()]


def _metric(table: SweepTable, panel: str) -> str:
    metric = table.metric(panel)
    return in_words(metric) + ("" if metric in METRICS else "; more is taken to be better")


def _length(table: SweepTable, panel: str) -> str:
    spec = spec_of(table, panel)
    if spec is None:
        return ""
    frames = f" ({4 * spec['steps']:,} frames)" if spec["env"].startswith("atari/") else ""
    return f"{spec['steps']:,} steps{frames}"


def _evaluation(table: SweepTable, panel: str) -> str:
    """How a run was evaluated, in words."""
    spec = spec_of(table, panel)
    if spec is None:
        return ""
    parts = []
    if spec["evaluate_every"]:
        unit = "steps" if spec["evaluate_steps"] else "episodes"
        long = f"{spec[f'evaluate_{unit}']:,} {unit}"
        parts.append(f"{long} every {spec['evaluate_every']:,} steps")
    if spec["final_episodes"]:
        parts.append(f"{counted(spec['final_episodes'], 'episode')} after training, on seeds that training never saw")
    where = f", in {spec['evaluate_env']}" if spec["evaluate_env"] else ""
    return " and ".join(parts) + where if parts else "none: scores are of training itself"


def _versions(entry: Entry) -> str:
    outcome = entry.run.outcome
    assert outcome is not None
    known = [f"{name} {version}" for name, version in outcome.versions.items() if version is not None]
    return f"{', '.join(known) or 'not recorded'}; revision {outcome.revision or 'not recorded'}"


def _ended(entries: Sequence[Entry]) -> str:
    """First and last day on which an outcome was written, by the dates of the files."""
    times = []
    for entry in entries:
        try:
            times.append(entry.run.outcome_file.stat().st_mtime)
        except OSError:
            continue
    if not times:
        return ""
    days = [time.strftime("%Y-%m-%d %H:%M", time.gmtime(t)) for t in (min(times), max(times))]
    return f"{days[0]} to {days[1]} UTC, by the dates of the files" if days[0] != days[1] else f"{days[0]} UTC"


def _directories(table: SweepTable) -> list[Block]:
    """What several directories mean for the names of agents."""
    if len(table.sweeps) < 2:
        return []
    names = short_names([sweep.directory for sweep in table.sweeps])
    text = f"The report has the runs of {len(names)} directories: {listed(names)}."
    if any(agent.endswith(f"[{name}]") for agent in table.agents for name in names):
        text += (
            " Where two of them have runs of equal settings, these are two agents here, named with their directory, "
            "and compared seed by seed: so two versions of the code, or two people's runs, stand side by side."
        )
    if table.merged:
        text += f" {listed(table.merged)}: seeds of several directories together, made by one version, no seed twice."
    return [Text(text)]


def _unscored(table: SweepTable) -> list[Block]:
    """Every run without a score, by name, with its cause."""
    missing = [(key, entry) for key, entries in table.cells.items() for entry in entries if entry.score is None]
    if not missing:
        return []
    lines = [f"{agent} on {panel}, seed {e.run.seed}: {e.state}; {e.problem}" for (agent, panel), e in missing]
    diverged = sum(entry.diverged for _, entry in missing)
    text = f"{counted(len(missing), 'run has', 'runs have')} no score: left out of all means, and named here."
    if diverged:
        text += (
            f" {counted(diverged, 'of them', 'of them')} diverged: leaving them out flatters their agent, so its mean "
            "is also given with each one as the lowest score of any run on its environment."
        )
    blocks: list[Block] = [Text(text, warning=True), Items(lines[:NAMED])]
    if len(lines) > NAMED:
        blocks.append(Folded(f"The other {len(lines) - NAMED:,} runs without a score", [Items(lines[NAMED:])]))
    return blocks


def reading(table: SweepTable, several: bool) -> Section:
    """How to read the report, for these runs."""
    most = max((len(table.scores(*key)) for key in table.cells), default=0)
    text = (
        "A score belongs to one run, and runs that differ in nothing but their seed differ in their scores. Therefore "
        "every number here is of several runs with an interval, every run is shown, and two agents are compared seed "
        "by seed. An interval of 95 % misses the truth one time in twenty even if all assumptions hold. “Undecided” "
        "means that these runs do not tell, not that agents are equal."
    )
    if most < 2:
        text += " Here every agent has one seed: there are no intervals and no verdicts, and differences may be luck."
    else:
        text += f" {about_means(most)}"
    if several:
        text += " Numbers over all environments summarise the scores of each; where the two differ, look at the latter."
    return Section("How to read this", [Text(text)])


def title_of(sweeps: Sequence[SweepData]) -> str:
    """What the page is called."""
    return f"Report of {listed([sweep.name for sweep in sweeps])}"


def _ranges(numbers: Sequence[int]) -> str:
    """``0–4, 7`` for 0, 1, 2, 3, 4 and 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)
