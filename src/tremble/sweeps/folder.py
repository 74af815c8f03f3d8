"""The directory of a sweep is its whole state: which runs there are, which are done, what a search found.

Nothing else remembers anything. Whoever reads the directory knows what is left to do, so workers come and go, and the
same command again continues, adds seeds, lengthens runs or fills in a cell.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tremble import escape
from tremble.records import CheckpointError, parse, read_text
from tremble.report.run_score import score
from tremble.settings import SettingsError, reference
from tremble.sweep_records import (
    RESULTS,
    Cell,
    Outcome,
    Phase,
    SweepData,
    SweepRun,
    Trial,
    as_text,
    outcome_file,
    read_outcome,
)
from tremble.sweeps.search_plan import SearchPlan, plan_search, written_out
from tremble.sweeps.sweep import COMPLETED, SHORTHANDS, Sweep, folder_name, spec_of
from tremble.training.checkpoint import require_folder, write_text
from tremble.training.lock import is_held
from tremble.training.spec import RunSpec

FORMAT = 1
"""Of ``sweep.json``."""


@dataclass(frozen=True)
class PlannedRun:
    """A run that the sweep asks for."""

    cell: Cell
    seed: int
    steps: int
    directory: Path
    phase: Phase = "test"

    @cached_property
    def spec(self) -> RunSpec:
        """All settings of the run."""
        return spec_of(self.cell, self.seed, self.steps)

    @property
    def outcome_file(self) -> Path:
        """Where its outcome is written."""
        return outcome_file(self.directory)

    @cached_property
    def name(self) -> str:
        """Folder of the cell and seed, which is unique in a sweep."""
        return f"{self.directory.parent.name}/{self.directory.name}"

    def require_folders(self) -> None:
        """Before anything is written or removed: its folders must not be links that lead elsewhere."""
        require_folder(self.directory.parent)
        require_folder(self.directory)

    def outcome(self) -> Outcome | None:
        """Its outcome, if it needs no more work: a result of fewer steps than planned is not one."""
        outcome = read_outcome(self.outcome_file)
        if outcome is not None and outcome.state == "finished" and outcome.step < self.steps:
            return None
        return outcome


class SweepFolder:
    """The directory of a sweep."""

    def __init__(self, directory: Path | str, runs: Path | str | None = None):
        """``runs`` is where run directories are, if not in ``directory/runs``; several sweeps may share one.

        The plan remembers it. Folders of shared runs are named by their length too: no sweep gets runs of another
        length than it asked for, or makes those of another sweep longer.
        """
        self.directory = Path(directory)
        self._runs = None if runs is None else Path(runs)
        self._places: dict[str, Path] = {}

    @cached_property
    def runs_directory(self) -> Path:
        """Where run directories are."""
        if self._runs is None and self.plan_file.exists():
            plan = parse(read_text(self.plan_file), escape.plain(self.plan_file))
            if isinstance(plan, dict) and isinstance(plan.get("runs"), str):
                return Path(os.path.normpath(self.directory / plan["runs"]))
        return self._runs or self.directory / "runs"

    def require_place(self) -> None:
        """Before anything is written or removed: a plan may come from anybody, and must not choose a place outside."""
        if self._runs is None and self.shared:
            where = escape.plain(self.runs_directory)
            raise SettingsError(
                f"the runs of {escape.plain(self.directory)} are in {where}, outside of it. If that is right, name it: "
                f"--runs {where}"
            )
        require_folder(self.directory)
        if self._runs is None:
            require_folder(self.runs_directory)

    @property
    def shared(self) -> bool:
        """Whether other sweeps may have runs there."""
        return self.runs_directory.absolute() != (self.directory / "runs").absolute()

    @property
    def plan_file(self) -> Path:
        """The plan that workers read."""
        return self.directory / "sweep.json"

    @property
    def stop_file(self) -> Path:
        """Workers that see this file change save their runs and end."""
        return self.directory / "stop"

    def read(self) -> Sweep:
        """The sweep that the directory holds."""
        if not self.plan_file.exists():
            raise SettingsError(f"{escape.plain(self.directory)} holds no sweep: it has no sweep.json")
        where = escape.plain(self.plan_file)
        plan = parse(read_text(self.plan_file), where)
        if not isinstance(plan, dict) or plan.get("format") != FORMAT:
            raise CheckpointError(f"{where} is not as this version writes it: its format is not {FORMAT}")
        fields = plan.get("sweep")
        _require_written_out(fields, where)
        try:
            return as_sweep(fields, where)
        except SettingsError as error:
            raise CheckpointError(f"{where} is not as this version writes it: {error}") from error

    def write(self, sweep: Sweep) -> None:
        """Make this the sweep of the directory; runs that it no longer asks for stay where they are.

        All cells are written out, so that a reader need not make an agent, which could import code that it names.
        """
        require_folder(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        shared = {"runs": os.path.relpath(self.runs_directory, self.directory)} if self.shared else {}
        write_text(self.plan_file, as_text({"format": FORMAT, **shared, "sweep": as_json(written_out(sweep))}))

    def planned(self, sweep: Sweep, ask: bool = False) -> tuple[list[PlannedRun], list[SearchPlan]]:
        """Every run that the sweep asks for at present, in the order of work, and its searches.

        Runs of a search come first; its winner's are known when it has ended. Seeds go in turns: every cell has its
        first seed before any has its second. ``ask`` lets Optuna choose trials that are due.
        """
        tuning: list[PlannedRun] = []
        searches: list[SearchPlan] = []
        cells: list[Cell] = []
        for cell in sweep.all_cells():
            if sweep.search is None:
                cells.append(cell)
                continue
            found = plan_search(sweep, cell, self, ask)
            searches.append(found)
            tuning += [
                self.run(trial, seed, sweep.search.steps or sweep.steps, sweep, "tuning")
                for trial in found.cells
                for seed in sweep.search.all_seeds
            ]
            if found.winner is not None and sweep.search.test:
                cells.append(found.winner)
        test = [self.run(cell, seed, sweep.steps, sweep) for seed in sweep.all_seeds for cell in cells]
        unique = {run.name: run for run in reversed([*tuning, *test])}
        return [run for run in [*tuning, *test] if unique[run.name] is run], searches

    def run(self, cell: Cell, seed: int, steps: int, sweep: Sweep, phase: Phase = "test") -> PlannedRun:
        """The run of a cell with one seed."""
        steps = cell.steps or steps
        place = self._place(cell, steps, sweep.callback)
        return PlannedRun(cell, seed, steps, place / f"seed-{seed}", phase)

    def _place(self, cell: Cell, steps: int, callback: str | None) -> Path:
        """The folder of a cell; kept, because all seeds ask for it."""
        key = f"{cell!r} {steps} {callback}"
        if key not in self._places:
            name = folder_name(spec_of(cell, 0, steps), callback)
            self._places[key] = self.runs_directory / (f"{name}-{steps}" if self.shared else name)
        return self._places[key]

    def data(self, sweep: Sweep | None = None) -> SweepData:
        """The sweep as reports see it: every planned run with its outcome."""
        sweep = self.read() if sweep is None else sweep
        runs, searches = self.planned(sweep)
        trials = [trial for search in searches for trial in search.trials]
        return SweepData(
            sweep.name or self.directory.name,
            self.directory,
            sweep.metric,
            sorted(map(self.seen, runs), key=lambda run: run.phase == "tuning"),
            trials,
            searches[0].in_words if searches else "",
            [f"tremble sweep {self.directory / 'sweep.toml'} --out {self.directory}"]
            if (self.directory / "sweep.toml").exists()
            else [f"tremble sweep {self.directory}"],
        )

    def seen(self, run: PlannedRun) -> SweepRun:
        """A run with its outcome, and whether somebody works on it."""
        outcome = run.outcome()
        held = outcome is None and run.directory.is_dir() and is_held(run.directory)
        return SweepRun(run.cell, run.seed, run.directory, run.phase, outcome, held)

    def score(self, run: PlannedRun, metric: str) -> float | None:
        """The score of a run with a result; None if it has none."""
        outcome = run.outcome()
        return score(run.directory, metric) if outcome is not None and outcome.state in RESULTS else None

    def stop_token(self) -> str:
        """Changes whenever somebody asks workers to stop."""
        try:
            found = os.lstat(self.stop_file)
        except FileNotFoundError:
            return "none"
        return f"{found.st_mtime_ns}-{found.st_ino}"

    def ask_to_stop(self) -> None:
        """Ask all workers, on all machines, to save their runs and end."""
        self.read()
        require_folder(self.directory)
        write_text(self.stop_file, "workers that see this file change save their runs and end\n")


def _require_written_out(fields: Any, where: str) -> None:
    """Raise unless all cells of a plan are written out: only then nothing is made, or imported, to know them."""
    fields = fields if isinstance(fields, dict) else {}
    found, search = fields.get("cells"), fields.get("search")
    cells = [cell for cell in found if isinstance(cell, dict)] if isinstance(found, list) else []
    whole = bool(cells) and cells == found and not any(fields.get(name) for name in SHORTHANDS)
    for cell in cells:
        given = cell.get("run_options")
        whole = whole and isinstance(given, dict) and set(COMPLETED) <= given.keys()
    if isinstance(search, dict):
        fitting = search.get("fitting")
        labels = [label for cell in cells if isinstance(label := cell.get("label"), str)]
        whole = whole and isinstance(fitting, dict) and len(labels) == len(cells) and set(labels) <= fitting.keys()
    if not whole:
        raise CheckpointError(f"{where} is not as this version writes it: its cells are not written out")


def as_json(sweep: Sweep) -> dict[str, Any]:
    """A sweep's fields, JSON-ready."""
    fields: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(sweep), allow_nan=False, default=reference))
    return fields


def as_sweep(fields: Any, where: str) -> Sweep:
    """The sweep whose fields a file holds; an error that names the file and the field."""
    try:
        return msgspec.convert(fields, Sweep, strict=True)
    except (msgspec.ValidationError, TypeError) as error:
        if isinstance(fields, Mapping) and isinstance(error.__cause__, SettingsError):
            raise error.__cause__ from None
        raise SettingsError(f"{where}: {error}") from error


def trial_states(trials: list[Trial]) -> dict[str, int]:
    """How many trials are open, scored, failed."""
    return {state: sum(trial.state == state for trial in trials) for state in ("open", "scored", "failed")}
