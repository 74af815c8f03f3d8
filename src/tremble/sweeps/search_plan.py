"""Where the search of one cell stands: its trials with their scores, what is due, and the winner."""

from __future__ import annotations

import dataclasses
import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tremble.presets import PARTS
from tremble.sweep_records import FAILURES, Cell, Trial
from tremble.sweeps.optuna_journal import OptunaJournal
from tremble.sweeps.search import fitting_space, fixed_trials
from tremble.sweeps.sweep import SHORTHANDS, Search, Sweep, called, folder_name, known_settings, spec_of
from tremble.training.checkpoint import require_folder
from tremble.training.lock import Claims
from tremble.training.spec import in_words as options_in_words

if TYPE_CHECKING:
    from tremble.sweeps.folder import SweepFolder


@dataclass(frozen=True)
class SearchPlan:
    """The search of one cell at present."""

    cells: list[Cell]
    """One for each trial so far."""
    trials: list[Trial]
    winner: Cell | None
    """The cell with the best settings, once every trial has ended."""
    in_words: str


def plan_search(sweep: Sweep, cell: Cell, folder: SweepFolder, ask: bool) -> SearchPlan:
    """Read the trials of a cell, score those whose runs are done, and with ``ask`` let Optuna choose new ones."""
    search = sweep.search
    assert search is not None
    names = search.fitting[cell.label] if cell.label in search.fitting else _fitting(search, cell)
    space = {name: domain for name, domain in search.space.items() if name in names}
    about = in_words(search)
    if not space:  # nothing to search for this agent
        return SearchPlan([], [], cell, about)
    if search.method != "optuna":
        settings = dict(enumerate(fixed_trials(search, space, cell)))
        return _judged(sweep, cell, folder, settings, len(settings))
    asked_for = json.dumps([search.seed, space], sort_keys=True, default=str).encode()  # another space: another journal
    name = f"{folder_name(spec_of(cell, 0, 1), sweep.callback)}-{zlib.crc32(asked_for):08x}"
    place = folder.directory / "search" / name
    journal = OptunaJournal(place, search, space, zlib.crc32(f"{search.seed} {cell.label}".encode()))
    plan = _judged(sweep, cell, folder, journal.settings(), search.trials)
    due = [t for t in plan.trials if t.state != "open" and t.number not in journal.told()]
    under_way = sum(trial.state == "open" for trial in plan.trials)
    room = min(search.at_once - under_way, search.trials - len(plan.trials))
    if not ask or not (due or room > 0):
        return plan
    require_folder(place.parent)
    require_folder(place)
    lock = Claims().take(place)
    if lock is None:
        return plan  # somebody else asks
    try:
        for trial in due:
            if trial.number not in journal.told():
                journal.tell(trial.number, trial.score)
        for _ in range(room):
            if len(journal.settings()) < search.trials:
                journal.ask()
    finally:
        lock.release()
    return _judged(sweep, cell, folder, journal.settings(), search.trials)


def written_out(sweep: Sweep) -> Sweep:
    """The same sweep with all that is known about its agents written out: nothing need be made to read it."""
    cells = sweep.all_cells()
    search = sweep.search
    if search is not None:
        search = dataclasses.replace(search, fitting={cell.label: _fitting(search, cell) for cell in cells})
    named = [dataclasses.replace(cell, agent_options=options_in_words(cell.agent_options)) for cell in cells]
    return dataclasses.replace(sweep, **SHORTHANDS, cells=named, search=search)


def _fitting(search: Search, cell: Cell) -> list[str]:
    """The settings of the space that the agent of a cell has."""
    parts = {name: value for name, value in cell.agent_options.items() if name in PARTS}
    return [*fitting_space(search, known_settings(cell.agent, cell.env, cell.hyperparameters, parts))]


def _judged(
    sweep: Sweep, cell: Cell, folder: SweepFolder, settings: dict[int, dict[str, Any]], wanted: int
) -> SearchPlan:
    """The trials with their scores; the winner, if all that are wanted have ended."""
    search = sweep.search
    assert search is not None
    cells, trials = [], []
    for number, chosen in settings.items():
        tried = dataclasses.replace(
            cell, label=f"{cell.label}, trial {number}", agent_options=cell.agent_options | chosen
        )
        cells.append(tried)
        trials.append(_trial(sweep, search, tried, number, chosen, folder))
    scored = [trial for trial in trials if trial.score is not None]
    if len(trials) < wanted or any(trial.state == "open" for trial in trials) or not scored:
        return SearchPlan(cells, trials, None, in_words(search))
    best = max(scored, key=lambda trial: (trial.score, -trial.number))
    trials = [dataclasses.replace(trial, won=trial is best) for trial in trials]
    agent, _, env = cell.label.rpartition(" | ")
    label = f"{called(agent or cell.label, best.settings)}{f' | {env}' if agent else ''}"
    winner = dataclasses.replace(cell, label=label, agent_options=cell.agent_options | best.settings)
    return SearchPlan(cells, trials, winner, in_words(search))


def _trial(
    sweep: Sweep, search: Search, cell: Cell, number: int, settings: dict[str, Any], folder: SweepFolder
) -> Trial:
    trial = Trial(cell.agent, cell.env, number, settings, cell.label)
    runs = [folder.run(cell, seed, search.steps or sweep.steps, sweep, "tuning") for seed in search.all_seeds]
    outcomes = [run.outcome() for run in runs]
    if None in outcomes:
        return trial
    if any(outcome is not None and outcome.state in FAILURES for outcome in outcomes):
        return dataclasses.replace(trial, state="failed")
    scores = [found for run in runs if (found := folder.score(run, sweep.metric)) is not None]
    if len(scores) < len(runs):
        return dataclasses.replace(trial, state="failed")
    return dataclasses.replace(trial, state="scored", score=float(np.mean(scores)))


def in_words(search: Search) -> str:
    """How the search goes about."""
    how = {
        "grid": "every combination",
        "random": f"{search.trials} independent draws",
        "optuna": "Optuna's TPE sampler",
    }
    trials = f", {search.trials} trials" if search.method == "optuna" else ""
    seeds = ", ".join(map(str, search.all_seeds[:5])) + (", ..." if len(search.all_seeds) > 5 else "")
    return f"{how[search.method]}{trials} for each cell, on tuning seeds {seeds}"
