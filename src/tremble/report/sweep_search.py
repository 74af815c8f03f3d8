"""The section of searches: every setting that was tried, with its score, and the one that won."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from tremble.report.figures import name_of
from tremble.report.page import Block, Section, Table, Text, folded_if_long
from tremble.report.sweep_looks import counted, digits_of, listed, shown
from tremble.sweep_records import FAILURES, RESULTS, SweepData, Trial


def section(sweeps: Sequence[SweepData]) -> Section | None:
    """All searches, whole; None where there was none."""
    blocks: list[Block] = []
    for sweep in sweeps:
        if sweep.trials or sweep.search:
            blocks += _search(sweep)
    return Section("Search for settings", blocks) if blocks else None


def _search(sweep: SweepData) -> list[Block]:
    """One sweep's search: how it went about, its seeds, its trials."""
    tuning = [run for run in sweep.runs if run.phase == "tuning"]
    seeds = sorted({run.seed for run in tuning})
    test = sorted({run.seed for run in sweep.runs if run.phase == "test"})
    states = Counter(run.state for run in tuning)
    shared = sorted(set(seeds) & set(test))
    text = f"{sweep.name}: {sweep.search or 'a search'}. {counted(len(tuning), 'run')} for tuning"
    text += f" on seeds {listed([str(seed) for seed in seeds])}" if seeds else ""
    text += f" ({', '.join(f'{n:,} {state}' for state, n in states.items())})." if states else "."
    text += (
        f" Scores of tuning choose the settings and are of no use for anything else: the best of many trials is high "
        f"by luck too. All other sections have runs with test seeds only: {listed([str(seed) for seed in test])}."
    )
    blocks: list[Block] = [Text(text)]
    if shared:
        warning = f"Seeds {listed([str(seed) for seed in shared])} were used for tuning and for the test."
        blocks.append(Text(f"{warning} Test scores of what was tuned on them are too high.", warning=True))
    failed = [run for run in tuning if run.state in FAILURES]
    if failed:
        causes = [f"{r.cell.label}, seed {r.seed}: {r.state}; {r.outcome.cause if r.outcome else ''}" for r in failed]
        blocks.append(Text(f"Tuning runs without a result: {listed(causes, 12)}.", warning=True))
    unfinished = sum(run.state not in (*RESULTS, *FAILURES) for run in tuning)
    if unfinished:
        blocks.append(Text(f"The search is not over: {counted(unfinished, 'tuning run')} to go.", warning=True))
    for agent, env in dict.fromkeys((trial.agent, trial.env) for trial in sweep.trials):
        trials = [trial for trial in sweep.trials if (trial.agent, trial.env) == (agent, env)]
        blocks.append(folded_if_long(_trials(agent, env, trials)))
    return blocks


def _trials(agent: str, env: str, trials: Sequence[Trial]) -> Table:
    """All trials of one agent on one environment, best first."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    digits = digits_of(trial.score for trial in trials if trial.score is not None)
    ordered = sorted(trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0), trial.number))
    rows = [
        [
            f"{trial.number}{' ★ won' if trial.won else ''}",
            *(_value(trial, name) for name in names),
            shown(trial.score, digits),
            trial.state,
        ]
        for trial in ordered
    ]
    scored = sum(trial.score is not None for trial in trials)
    caption = (
        f"Search for {name_of(agent)} on {env}. {counted(len(trials), 'trial')}, {scored:,} with a score: the mean "
        "over the tuning seeds. Best first; ★ is the setting that was trained again with test seeds."
    )
    return Table(caption, ["trial", *names, "score", "state"], rows, 1)


def _value(trial: Trial, name: str) -> str:
    if name not in trial.settings:
        return "–"
    value = trial.settings[name]
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
