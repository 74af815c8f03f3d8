"""Many runs by command: a sweep, how it stands, and what to do with its directory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import console

if TYPE_CHECKING:
    from tremble.sweeps.folder import SweepFolder
    from tremble.sweeps.sweep import Sweep as Plan


@dataclass
class Sweep:
    """Train every agent on every environment with every setting and seed of a file, on this machine or a cluster.

    The file is TOML; `tremble sweep example` prints one that explains itself. The directory holds everything: the same
    command again continues, and a file with more seeds, steps, agents or settings adds what is missing.

    Examples:
      tremble sweep cartpole.toml                      # one process per core, into runs/cartpole
      tremble sweep cartpole.toml --dry-run            # what it would train, and what that costs
      tremble sweep cartpole.toml --shard 3/16         # on the third of sixteen machines that share the directory
      tremble sweep cartpole.toml --sbatch 16          # print a SLURM script that does that
      tremble sweep cartpole.toml --engine ray --address auto
      tremble sweep status runs/cartpole               # also: stop, retry, gc, example
    """

    file: Positional[Path]
    """A sweep file (TOML), or the directory of a sweep, to go on with it."""
    out: Path | None = None
    """Directory of the sweep (default: runs/NAME-OF-THE-FILE)."""
    runs: Path | None = None
    """Where run directories go (default: OUT/runs); several sweeps may share them."""
    engine: Literal["local", "ray"] = "local"
    """This machine, or a Ray cluster (pip install 'tremble[ray]')."""
    address: str = "auto"
    """Of the Ray cluster; auto finds one that is running on this machine, local starts one."""
    gpus: float = 0.0
    """With Ray: the share of a GPU that each run gets; 0 trains on CPUs."""
    jobs: int | None = None
    """Processes (default: one per core, fewer where memory does not suffice)."""
    shard: str = "1/1"
    """K/N: this is the k-th of n machines that share the directory. It begins with every n-th run, then helps."""
    wait: bool = True
    """Stay while other machines train what is left, to take over from those that die."""
    minutes: float | None = None
    """Begin no run after so many minutes."""
    dry_run: bool = False
    """Check everything and show the cost; train nothing."""
    measure: bool = True
    """Measure a few seconds of each kind of run before, for memory, disk and hours."""
    sbatch: int | None = None
    """Print a SLURM script for so many machines, and end."""
    trust_code: bool = False
    """Import what the files of a directory name as module:name. A sweep file of your own needs no such consent."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.sweeps.start import as_local_options, start

        folder, sweep = self._open()
        if self.sbatch is not None:
            from tremble.sweeps.cluster import sbatch_script

            print(sbatch_script(self.file, folder, self.sbatch, os.getcwd()), end="")
            return
        start(
            sweep,
            folder,
            as_local_options(self.jobs, self.shard, self.minutes, self.wait),
            console,
            engine=self.engine,
            address=self.address,
            gpus=self.gpus,
            dry_run=self.dry_run,
            measured=self.measure,
        )
        if not self.dry_run:
            show_status(folder)

    def _open(self) -> tuple[SweepFolder, Plan]:
        """The directory and the sweep that is wanted."""
        from tremble.sweeps.folder import SweepFolder
        from tremble.sweeps.start import consent
        from tremble.sweeps.sweep_file import read_sweep
        from tremble.training.checkpoint import write_text

        if self.file.is_dir():
            folder = SweepFolder(self.file, self.runs)
            sweep = folder.read()
            consent(sweep, folder, self.trust_code)
            return folder, sweep
        sweep = read_sweep(self.file)
        folder = SweepFolder(self.out or Path("runs") / self.file.stem, self.runs)
        if not self.dry_run and self.sbatch is None:
            folder.directory.mkdir(parents=True, exist_ok=True)
            copy = folder.directory / "sweep.toml"
            if not (copy.exists() and copy.samefile(self.file)):
                write_text(copy, self.file.read_text(encoding="utf-8"))
        return folder, sweep


@dataclass
class SweepStatus:
    """How a sweep stands: a row for each cell, every failure with its cause."""

    directory: Positional[Path]
    """The directory of the sweep."""
    runs: Path | None = None
    """Where its run directories are (default: DIRECTORY/runs)."""
    live: bool = False
    """Stay and show it again every few seconds; Ctrl-C ends it."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.sweeps.folder import SweepFolder

        folder = SweepFolder(self.directory, self.runs)
        if not self.live:
            show_status(folder)
            return
        from rich.live import Live

        from tremble.sweeps.status import status_tables, wait_for_change

        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(status_tables(folder.data()), refresh=True)
                wait_for_change()


@dataclass
class SweepStop:
    """Ask all workers of a sweep, on all machines, to save their runs and end."""

    directory: Positional[Path]
    """The directory of the sweep."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.sweeps.folder import SweepFolder

        SweepFolder(self.directory).ask_to_stop()
        console.print("workers save their runs and end within seconds; the same `tremble sweep` command goes on")


@dataclass
class SweepRetry:
    """Forget outcomes, so that the next `tremble sweep` trains these runs again, from their last checkpoint."""

    directory: Positional[Path]
    """The directory of the sweep."""
    failed: bool = True
    """Runs that failed."""
    timed_out: bool = True
    """Runs that made no step for too long."""
    diverged: bool = False
    """Runs with numbers that are not finite; the same code and seed diverge again, so these begin anew."""
    runs: Path | None = None
    """Where its run directories are (default: DIRECTORY/runs)."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.sweeps.folder import SweepFolder
        from tremble.sweeps.upkeep import retry

        chosen = {"failed": self.failed, "timed out": self.timed_out, "diverged": self.diverged}
        number = retry(SweepFolder(self.directory, self.runs), [state for state, wanted in chosen.items() if wanted])
        console.print(f"{number} runs will be trained again by the next `tremble sweep` command")


@dataclass
class SweepGc:
    """Free disk: remove checkpoints of finished runs, and runs that the sweep no longer asks for."""

    directory: Positional[Path]
    """The directory of the sweep."""
    checkpoints: bool = True
    """Checkpoints of runs with a result: logs and weights stay, but such a run cannot be lengthened any more."""
    abandoned: bool = False
    """Whole runs below DIRECTORY/runs that the sweep does not ask for."""
    dry_run: bool = False
    """Say what would be removed."""
    runs: Path | None = None
    """Where its run directories are (default: DIRECTORY/runs)."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.replay import readable
        from tremble.sweeps.folder import SweepFolder
        from tremble.sweeps.upkeep import collect_garbage

        folder = SweepFolder(self.directory, self.runs)
        freed, number = collect_garbage(folder, self.checkpoints, self.abandoned, self.dry_run)
        would = "would free" if self.dry_run else "freed"
        console.print(f"{would} {readable(freed)} in {number:,} directories")


@dataclass
class SweepExample:
    """Print a sweep file that explains itself."""

    def run(self) -> None:
        """Execute the command."""
        from importlib.resources import files

        print((files("tremble.sweeps") / "example.toml").read_text(encoding="utf-8"), end="")


def show_status(folder: SweepFolder) -> None:
    """Print how a sweep stands."""
    from tremble.sweeps.status import status_tables

    console.print(status_tables(folder.data()))
    where = escape.console(folder.directory)
    console.print(f"next: [bold]tremble report {where}[/]   or tremble results {where}", highlight=False)
