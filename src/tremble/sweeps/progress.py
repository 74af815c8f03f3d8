"""Progress of a sweep on the terminal, read from its directory."""

from __future__ import annotations

import time
from contextlib import ExitStack

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tremble import escape
from tremble.sweep_records import FAILURES
from tremble.sweeps.estimate import duration
from tremble.sweeps.folder import PlannedRun, SweepFolder
from tremble.sweeps.local import LocalEngine, LocalOptions
from tremble.training import lock

LOOK_SECONDS = 2.0
"""Between two looks at the directory."""
LINE_SECONDS = 30.0
"""Between two lines where there is no terminal."""


class SweepProgress:
    """What is done, as one bar of steps; failures are printed when they are found."""

    def __init__(self, folder: SweepFolder, console: Console, bar: Progress | None):
        """Before the first look. Without a bar it prints a line now and then."""
        self.folder, self.sweep = folder, folder.read()
        self._console, self._bar = console, bar
        self._task: TaskID | None = None
        self._done: dict[str, int] = {}
        """Steps of the runs that need no more work, by name."""
        self._first: tuple[float, int] | None = None
        """When the first look was, and the steps by then."""
        self._looked, self._said = -LOOK_SECONDS, -LINE_SECONDS
        self.failed = 0

    def look(self, now: bool = False) -> None:
        """Read the directory, unless that was done a moment ago."""
        if not now and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        runs, _ = self.folder.planned(self.sweep)
        under_way = 0
        for run in runs:
            if run.name not in self._done:
                under_way += self._look_at(run)
        made = under_way + sum(self._done[run.name] for run in runs if run.name in self._done)
        self._show(runs, made)
        self._looked = time.monotonic()

    def _look_at(self, run: PlannedRun) -> int:
        """Note the outcome of a run if it has one; the steps that it has made if it is under way."""
        if run.outcome_file.exists() and (outcome := run.outcome()) is not None:
            self._done[run.name] = run.steps
            if outcome.state in FAILURES:
                self.failed += 1
                about = f"{run.cell.label}, seed {run.seed}: {outcome.state}: {outcome.cause}"
                self._console.print(f"[red]{escape.console(about)}[/]", highlight=False, soft_wrap=True)
            return 0
        if not run.directory.is_dir():
            return 0
        step = lock.progress(run.directory).get("step", 0)
        return min(step, run.steps) if isinstance(step, int) else 0

    def _show(self, runs: list[PlannedRun], made: int) -> None:
        now = time.monotonic()
        begin, before = self._first = self._first or (now, made)
        speed = (made - before) / (now - begin) if now > begin else 0.0
        total = sum(run.steps for run in runs)
        left = f"{duration((total - made) / speed)} left" if speed else "compiling"
        more = "+" if self.sweep.search is not None else ""
        shown = f"{len(self._done):,} of {len(runs):,}{more} runs  {speed:,.0f} steps/s  {left}"
        if self._bar is None:
            if now - self._said >= LINE_SECONDS:
                self._said = now
                self._console.print(shown, highlight=False, soft_wrap=True)
            return
        if self._task is None:
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=made, total=total, description=shown)


def work_locally(folder: SweepFolder, options: LocalOptions, console: Console) -> SweepProgress:
    """Run the local engine on a sweep's directory under a progress bar; returns what was seen at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with ExitStack() as stack:
        bar = stack.enter_context(Progress(*columns, console=console)) if console.is_terminal else None
        progress = SweepProgress(folder, console, bar)
        engine = LocalEngine(folder, options)
        engine.run(progress.look)
        progress.look(now=True)
    if engine.deaths:
        console.print(f"[yellow]{engine.deaths} workers died and were started again; see workers.log[/]")
    return progress


def unfinished(folder: SweepFolder) -> list[PlannedRun]:
    """Runs without an outcome."""
    return [run for run in folder.planned(folder.read())[0] if run.outcome() is None]
