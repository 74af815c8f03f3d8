"""The command `tremble`."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg, subcommand

console = Console()


@dataclass
class Study:
    """Reproduce a figure or table of the paper: train what is missing, then write data, figures and a report."""

    name: Positional[str]
    """Which one; `tremble list` shows them."""
    seeds: int | None = None
    """Seeds 0 to N-1 (default: the paper's number, or what the study's page says)."""
    quick: bool = False
    """A small version that shows the whole path in a minute or two; not a result."""
    out: Path | None = None
    """Where report, figures and data go (default: runs/NAME)."""
    store: Path = Path("runs/store")
    """Where trained runs are kept; studies share them, and an interrupted study goes on from there."""
    steps: int | None = None
    """Environment steps per run (default: 20000)."""
    budget_minutes: float | None = None
    """Start no new run after this long; the report says how many seeds each cell got."""
    jobs: int | None = None
    """Processes (default: one per core)."""
    report_only: bool = False
    """Train nothing; write the report from the runs there are."""

    def run(self) -> None:
        """Run it."""
        from tremble.settings import SettingsError, nearest
        from tremble.studies import STUDIES

        if self.name not in STUDIES:
            raise SettingsError(f"there is no study {self.name!r}; {nearest(self.name, STUDIES)}")
        _run_study(STUDIES[self.name], self, Path(f"runs/{self.name}"))


@dataclass
class Demo:
    """Train the paper's four agents on N-Chain and show what they did: about three minutes on two cores."""

    out: Path = Path("runs/demo")
    """Where report, figures and data go."""
    store: Path = Path("runs/store")
    """Where trained runs are kept; an interrupted demo goes on from there."""
    seeds: int | None = None
    """Seeds 0 to N-1 (default: 3)."""
    steps: int | None = None
    """Environment steps per run (default: 20000)."""
    full: bool = False
    """The paper's 10 seeds."""
    jobs: int | None = None
    """Processes (default: one per core)."""

    def run(self) -> None:
        """Run it."""
        from tremble.studies.demo import STUDY

        seeds = self.seeds or (10 if self.full else None)
        settings = Study(STUDY.name, seeds=seeds, out=self.out, store=self.store, steps=self.steps, jobs=self.jobs)
        _run_study(STUDY, settings, self.out, show_counts=True)


@dataclass
class Train:
    """Train one agent and keep the run: settings, metrics, weights, and the state to continue from.

    Repeating the command continues an interrupted run, with the same numbers as if it had not been interrupted.
    """

    agent: Positional[str]
    """Which agent; `tremble list` shows them."""
    env: str = "nchain"
    """Which environment."""
    steps: int = 20_000
    """Environment steps."""
    seed: int = 0
    """One seed, one sequence of numbers."""
    out: Path | None = None
    """Run directory (default: runs/AGENT-ENV-sSEED)."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change a setting of the agent: --set delta_0=100 --set widths=128,128. See `tremble list --settings AGENT`."""
    env_set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change an option of the environment: --env-set right_low=1 --env-set right_high=17."""

    def run(self) -> None:
        """Run it."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        from tremble.settings import parse_assignments
        from tremble.training.run import train

        out = self.out or Path(f"runs/{self.agent}-{self.env}-s{self.seed}")
        columns = (
            TextColumn(f"{self.agent} on {self.env}"), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"),
            TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("train", total=self.steps, note="compiling")

            def show(step: int, row: dict[str, float]) -> None:
                parts = [f"return {row['reward_per_episode']:.2f}"] if row else []
                parts += [f"{k} {row[k]:.3g}" for k in ("loss", "delta", "coefficient", "epsilon") if row.get(k)]
                progress.update(bar, completed=step, note="  ".join(parts))

            run = train(
                self.agent,
                self.env,
                steps=self.steps,
                seed=self.seed,
                out=out,
                env_options=parse_assignments(self.env_set),
                on_progress=show,
                **parse_assignments(self.set),
            )
        table = Table("action", "mean", "std", "5 %", "95 %", title="Return predicted at the start state")
        from tremble.dist import ReturnDist

        dist = ReturnDist(run.snapshots["atoms"][-1])
        for action in range(dist.atoms.shape[0]):
            d = dist[action]
            numbers = (d.mean(), d.std(), d.quantile(0.05), d.quantile(0.95))
            table.add_row(str(action), *[f"{float(x):.3f}" for x in numbers])
        console.print(table)
        console.print(f"optimal actions: {run.optimal_count:,} of {self.steps:,}   saved in [bold]{out}[/]")


@dataclass
class List:
    """Show what there is: agents, criteria, environments, studies; or every setting of one agent."""

    settings: str | None = None
    """Show the settings of this agent, with the values of --domain."""
    domain: Literal["nchain", "lunarlander", "atari"] = "nchain"
    """Which of the paper's hyperparameter columns."""

    def run(self) -> None:
        """Run it."""
        import tremble
        from tremble.presets import PRESETS, make
        from tremble.settings import describe
        from tremble.studies import STUDIES

        if self.settings:
            table = Table("setting", "value", title=f"{self.settings} ({self.domain})")
            for name, value in describe(make(self.settings, self.domain)).items():
                table.add_row(name, str(value))
            console.print(table)
            return
        for title, rows in {
            "agents": {name: about for name, (about, _) in PRESETS.items()},
            "criteria": {name: "" for name in tremble.list_criteria()},
            "environments": {name: "" for name in tremble.list_envs()},
            "studies": {name: study.about for name, study in STUDIES.items()},
        }.items():
            table = Table.grid(padding=(0, 3))
            for name, about in rows.items():
                table.add_row(f"  [bold]{name}[/]", about)
            console.print(f"[bold underline]{title}[/]")
            console.print(table)
            console.print()


@dataclass
class Illustrate:
    """Draw the paper's two illustrative figures with the library's own criteria (nothing is trained)."""

    out: Path = Path("runs/illustrate")
    """Where the figures go."""

    def run(self) -> None:
        """Run it."""
        from tremble.studies.illustrate import illustrate

        illustrate(self.out)
        console.print(f"figures in [bold]{self.out}[/]")


def _run_study(study, settings: Study, default_out: Path, show_counts: bool = False) -> None:  # type: ignore[no-untyped-def]
    from tremble.settings import SettingsError
    from tremble.studies.nchain_counts import count_table
    from tremble.studies.runner import Options, collect, run_study

    seeds = settings.seeds or (study.quick_seeds if settings.quick else study.seeds)
    steps = settings.steps or (study.quick_steps if settings.quick else study.steps)
    if seeds < 1 or steps < 1000:
        raise SettingsError("a study needs at least one seed and 1,000 steps")
    options = Options(
        settings.out or default_out, settings.store, seeds, steps, settings.quick,
        settings.budget_minutes, settings.jobs, settings.report_only,
    )  # fmt: skip
    report = run_study(study, options, console)
    if show_counts:
        console.print(_as_rich(count_table(collect(study, dataclasses.replace(options, report_only=True), console))))
    console.print(f"report: [bold]{report}[/]   figures and data beside it")


def _as_rich(markdown: str) -> Table:
    """A markdown table for the terminal."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in markdown.strip().splitlines()]
    table = Table(*lines[0])
    for line in lines[2:]:
        table.add_row(*line)
    return table


Command = (
    Annotated[Train, subcommand("train")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Demo, subcommand("demo")]
    | Annotated[Illustrate, subcommand("illustrate")]
    | Annotated[List, subcommand("list")]
)


def main() -> None:
    """Entry point; expected failures are one message and a non-zero exit."""
    command = tyro.cli(
        Command,
        prog="tremble",
        description="Distributional reinforcement learning with randomised risk criteria.",
    )
    from tremble.settings import SettingsError
    from tremble.training.checkpoint import CheckpointError
    from tremble.training.pool import PoolError

    try:
        command.run()
    except KeyboardInterrupt:
        console.print("\n[yellow]interrupted.[/] What was finished is kept: repeat the command to go on.")
        sys.exit(130)
    except (SettingsError, CheckpointError, PoolError, OSError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False, markup=True)
        sys.exit(1)
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
