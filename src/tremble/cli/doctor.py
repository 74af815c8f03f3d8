"""Whether this machine is ready."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tremble import escape
from tremble.cli.console import console

if TYPE_CHECKING:
    from tremble.training.machine import Machine


@dataclass
class Doctor:
    """Say whether this machine is ready: versions, cores, memory, disk; with --atari, play all games, add up a study.

    Examples:
      tremble doctor
      tremble doctor --atari --measure
      tremble doctor --atari --agent qrdqn --protocol dopamine --seeds 5 --frames-per-second 400
    """

    atari: bool = False
    """Play 2,000 frames of each of the paper's 55 games, and say what a study of them would take."""
    out: Path = Path("runs")
    """Where runs would go: its disk is looked at."""
    agent: str = "pqr"
    """The agent of the study."""
    protocol: str = "paper"
    """The protocol of the study; `tremble protocols` shows them."""
    frames: int | None = None
    """Frames of a run (default: the protocol's)."""
    games: int = 55
    """Games of the study."""
    seeds: int = 3
    """Seeds of the study."""
    jobs: int | None = None
    """Runs at a time (default: one per core)."""
    frames_per_second: float | None = None
    """How fast a run goes, to say how long the study takes."""
    measure: bool = False
    """Train for a moment to find out how fast a run goes; alone, with nothing beside it."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.atari.checks import atari_versions, complaints
        from tremble.replay import readable
        from tremble.training.compilation_cache import enable_compilation_cache
        from tremble.training.machine import machine, threads, versions

        found, here = versions() | atari_versions(), machine(self.out)
        table = Table.grid(padding=(0, 3))
        for name, version in found.items():
            table.add_row(f"  {name}", version or "[yellow]not installed[/]")
        console.print(table)
        console.print(
            f"{here.system}, {here.cores} cores, memory {readable(here.memory)} ({readable(here.free_memory)} free), "
            f"disk {readable(here.free_disk)} free; JAX on {', '.join(here.devices)}, {threads()} threads",
            highlight=False,
            soft_wrap=True,
        )
        kept = enable_compilation_cache()
        console.print(f"compiled programs: {escape.console(kept)}", highlight=False, soft_wrap=True)
        _show_extras()
        problems = complaints(found) if self.atari else []
        if self.atari and not problems:
            problems += self._cost(here) + self._play()
        for problem in problems:
            console.print(f"[bold red]problem:[/] {problem}", highlight=False, soft_wrap=True)
        if problems:
            sys.exit(1)
        console.print("[green]all is well[/]")

    def _cost(self, here: Machine) -> list[str]:
        """Memory, disk and hours of a study; what there is not enough of."""
        from tremble.atari.cost import measure_frames_per_second, run_cost
        from tremble.atari.protocols import find_protocol
        from tremble.replay import readable

        frames = self.frames or find_protocol(self.protocol).run_frames
        speed = self.frames_per_second
        if self.measure:
            console.print("measuring the speed of training, about a minute ...")
            speed = measure_frames_per_second(self.agent, self.protocol)
        cost = run_cost(self.agent, self.protocol, frames, speed)
        runs, jobs = self.games * self.seeds, self.jobs or here.cores
        title = f"{self.agent} under {self.protocol}: {self.games} games, {self.seeds} seeds, {frames:,} frames"
        table = Table("", "one run", f"{runs} runs, {jobs} at a time", title=title)
        together = min(jobs, runs)
        memory, disk = cost.replay_bytes * together, cost.disk_bytes * together
        table.add_row("steps", f"{cost.steps:,}", f"{cost.steps * runs:,}")
        table.add_row("updates", f"{cost.updates:,}", f"{cost.updates * runs:,}")
        table.add_row("memory of replay", readable(cost.replay_bytes), readable(memory))
        table.add_row("disk while it runs, at most", readable(cost.disk_bytes), readable(disk))
        table.add_row("disk if all checkpoints stay", readable(cost.disk_bytes), readable(cost.disk_bytes * runs))
        if cost.hours is None or speed is None:
            table.add_row("hours", "?", "give --frames-per-second, or --measure")
        else:
            total = cost.hours * runs / together
            table.add_row(
                f"hours at {speed:,.0f} frames/s", f"{cost.hours:,.1f}", f"{total:,.0f} ({total / 24:,.1f} days)"
            )
        console.print(table)
        problems = []
        if memory > here.free_memory:
            problems.append(
                f"{together} replays at a time need {readable(memory)} of memory, "
                f"{readable(here.free_memory)} are free: fewer jobs, a smaller memory_size, or a replay file"
            )
        if disk > here.free_disk:
            problems.append(f"checkpoints need up to {readable(disk)} of disk, {readable(here.free_disk)} are free")
        return problems

    def _play(self) -> list[str]:
        """Some frames of every game."""
        from rich.progress import Progress

        from tremble.atari.checks import check_games
        from tremble.atari.games import PAPER_GAMES

        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("games", total=len(PAPER_GAMES))
            checks = check_games(self.protocol, on_game=lambda check: progress.advance(bar))
        frames, seconds = sum(c.frames for c in checks), sum(c.seconds for c in checks)
        slowest = min((c for c in checks if c.seconds), key=lambda c: c.frames / c.seconds, default=None)
        speed = f", {frames / seconds:,.0f} frames/s without an agent (slowest: {slowest.game})" if slowest else ""
        well = sum(not c.problem for c in checks)
        console.print(f"{well} of {len(checks)} games play as they should{speed}", highlight=False)
        return [f"{c.game}: {c.problem}" for c in checks if c.problem]


def _show_extras() -> None:
    """Each extra: what it enables, and what is missing for it."""
    from tremble.extras import EXTRAS, pip_line

    table = Table.grid(padding=(0, 3))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    absent = []
    for name, extra in EXTRAS.items():
        missing = extra.missing()
        absent += [name] if missing else []
        state = f"[yellow]missing: {', '.join(missing)}[/]" if missing else "[green]installed[/]"
        table.add_row(f"  {name}", extra.enables, state)
    console.print(table)
    if absent:
        console.print(f"for what is missing: {escape.console(pip_line(*absent))}", highlight=False, soft_wrap=True)
