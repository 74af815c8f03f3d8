"""Outcomes forgotten, checkpoints and abandoned runs removed: what is done to a sweep's directory between its runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tremble import escape
from tremble.settings import SettingsError
from tremble.sweep_records import RESULTS
from tremble.sweeps.claimed_run import Tries
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.training.lock import Claims


def retry(folder: SweepFolder, states: Sequence[str]) -> int:
    """Forget the outcomes of runs that ended so; returns how many. What diverged begins anew."""
    folder.require_place()
    number = 0
    for run in folder.planned(folder.read())[0]:
        outcome = run.outcome()
        if outcome is None or outcome.state not in states:
            continue
        run.require_folders()
        if outcome.state == "diverged":
            shutil.rmtree(run.directory, ignore_errors=True)
        if run.directory.parent.exists():
            Tries(run).end()
        run.outcome_file.unlink(missing_ok=True)
        number += 1
    return number


def collect_garbage(folder: SweepFolder, checkpoints: bool, abandoned: bool, dry_run: bool) -> tuple[int, int]:
    """Remove what is not needed; bytes freed, and the number of directories. Runs that somebody trains stay."""
    folder.require_place()
    if abandoned and folder.shared:
        where = escape.plain(folder.runs_directory)
        raise SettingsError(f"other sweeps may have runs in {where}: those that this one does not ask for are kept")
    planned = folder.planned(folder.read())[0]
    for run in planned:
        run.require_folders()
    doomed = [run.directory / "checkpoints" for run in planned if checkpoints and _ended(run)]
    if abandoned:
        wanted = {run.directory for run in planned}
        there = [path for path in folder.runs_directory.glob("*/seed-*") if _is_own(path)]
        doomed += [path for path in there if path not in wanted and _free(path)]
    freed, number = 0, 0
    for path in doomed:
        if not path.is_dir() or path.is_symlink():
            continue
        freed += sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())
        number += 1
        if not dry_run:
            shutil.rmtree(path, ignore_errors=True)
            if path.name.startswith("seed-"):
                for beside in (f"{path.name}.json", f"{path.name}.tries.jsonl"):
                    path.with_name(beside).unlink(missing_ok=True)
                with suppress(OSError):  # not empty
                    path.parent.rmdir()
    return freed, number


def _ended(run: PlannedRun) -> bool:
    outcome = run.outcome()
    return outcome is not None and outcome.state in RESULTS


def _is_own(path: Path) -> bool:
    """Whether a directory is really there, not a link to it."""
    return path.is_dir() and not path.is_symlink() and not path.parent.is_symlink()


def _free(directory: Path) -> bool:
    """Whether nobody trains in a directory."""
    lock = Claims().take(directory)
    if lock is None:
        return False
    lock.release()
    return True
