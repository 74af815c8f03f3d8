"""What came of many runs: a report, tables, and a comparison in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional, UseAppendAction

from tremble import escape
from tremble.cli.console import Assignments, console

POINTS = 20
"""Evaluations on the learning curve of a comparison."""


@dataclass
class Report:
    """One page with everything that a sweep found: curves, scores of every seed, intervals, verdicts, costs.

    The page is one HTML file without outside assets, and the same in markdown beside it. Several directories (two
    versions of the code, a colleague's runs) become one report.

    Examples:
      tremble report runs/cartpole
      tremble report runs/cartpole ../theirs/cartpole --out both
    """

    directories: Positional[tuple[Path, ...]]
    """Directories of sweeps."""
    out: Path | None = None
    """Where report.html, report.md, figures and scores.csv go (default: the first directory; that of a study has a
    report of its own, so there it is DIRECTORY/sweep-report)."""
    runs: Path | None = None
    """Where the run directories of a single sweep are (default: DIRECTORY/runs)."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.report.sweep_report import write_report
        from tremble.settings import SettingsError
        from tremble.sweeps.folder import SweepFolder

        if not self.directories:
            raise SettingsError("name at least one sweep's directory: tremble report runs/cartpole")
        if self.runs is not None and len(self.directories) > 1:
            raise SettingsError("--runs goes with one directory")
        folders = [SweepFolder(directory, self.runs) for directory in self.directories]
        beside = folders[0].directory / "sweep-report" if folders[0].shared else folders[0].directory
        page = write_report([folder.data() for folder in folders], self.out or beside)
        console.print(f"report: [bold]{escape.console(page)}[/]   markdown, figures and scores.csv beside it")


@dataclass
class Results:
    """All runs of sweeps as one table, and SQL over their logs.

    Without options it writes results.csv beside the sweep: a row for each run, with settings, state and scores.
    Parquet and SQL need pip install 'tremble[results]'; the tables of a query are runs, metrics, episodes,
    evaluations and final.

    Examples:
      tremble results runs/cartpole
      tremble results runs/cartpole --parquet out
      tremble results runs/cartpole --sql "SELECT agent, avg(score) FROM runs GROUP BY agent"
    """

    directories: Positional[tuple[Path, ...]]
    """Directories of sweeps."""
    out: Path | None = None
    """The CSV file (default: results.csv in the first directory)."""
    parquet: Path | None = None
    """Write one Parquet file for each table into this directory."""
    sql: str | None = None
    """A query; its result is printed as CSV."""
    runs: Path | None = None
    """Where the run directories of a single sweep are (default: DIRECTORY/runs)."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.settings import SettingsError
        from tremble.sweeps.folder import SweepFolder
        from tremble.sweeps.results import query, run_table, write_parquet

        if not self.directories:
            raise SettingsError("name at least one sweep's directory: tremble results runs/cartpole")
        folders = [SweepFolder(directory, self.runs) for directory in self.directories]
        data = [folder.data() for folder in folders]
        if self.sql is not None:
            print(query(data, self.sql).to_csv(index=False), end="")
            return
        if self.parquet is not None:
            for path in write_parquet(data, self.parquet):
                console.print(f"written: {escape.console(path)}", highlight=False)
            return
        table, out = run_table(data), self.out or self.directories[0] / "results.csv"
        table.to_csv(out, index=False, lineterminator="\n")
        console.print(f"{len(table):,} runs: [bold]{escape.console(out)}[/]")


@dataclass
class Compare:
    """Train agents on environments with several seeds, and report which is better: one command, resumable.

    It writes a sweep file, works it off and writes the report; the same command again goes on.

    Examples:
      tremble compare pqr qrdqn --envs CartPole-v1 LunarLander-v3 --seeds 5
      tremble compare pqr dqn --envs my_package.my_env:MyEnv --steps 100000 --set learning_rate=3e-4
    """

    agents: Positional[tuple[str, ...]]
    """Names of `tremble list`."""
    envs: tuple[str, ...]
    """Environments, as for `tremble train`."""
    seeds: int = 5
    """Seeds of each agent on each environment."""
    steps: int = 50_000
    """Environment steps of each run."""
    out: Path | None = None
    """Directory of the sweep (default: runs/compare-AGENTS)."""
    hyperparameters: str | None = None
    """Table of hyperparameters (default: the paper's for its own environments, `control` for all others)."""
    jobs: int | None = None
    """Processes (default: one per core, fewer where memory does not suffice)."""
    callback: str | None = None
    """module:function that is called with every row: own metrics, early stop."""
    set: Assignments = ()
    """A setting of all agents that have it: --set learning_rate=1e-3."""
    env_set: Assignments = ()
    """An option of the environments."""
    track: UseAppendAction[tuple[str, ...]] = ()
    """Send the metrics there too: tensorboard, wandb, mlflow, trackio."""
    open: bool = False
    """Open the report in the browser at the end."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.cli.sweep import show_status
        from tremble.report.sweep_report import write_report
        from tremble.settings import SettingsError, parse_assignments
        from tremble.sweeps.folder import SweepFolder
        from tremble.sweeps.start import as_local_options, start
        from tremble.sweeps.sweep import Sweep
        from tremble.sweeps.sweep_file import as_toml, read_sweep
        from tremble.training.checkpoint import write_text

        if not self.agents:
            raise SettingsError("name the agents to compare: tremble compare pqr qrdqn --envs CartPole-v1")
        folder = SweepFolder(self.out or Path("runs") / f"compare-{'-'.join(self.agents)}")
        file = folder.directory / "sweep.toml"
        sweep = Sweep(
            agents=self.agents,
            envs=self.envs,
            steps=self.steps,
            seeds=self.seeds,
            name=" and ".join(self.agents),
            # A longer comparison goes on with the interval of the one that is there: otherwise it would be another.
            evaluate_every=read_sweep(file).evaluate_every if file.exists() else max(1, self.steps // POINTS),
            settings=parse_assignments(self.set),
            env_options=parse_assignments(self.env_set),
            hyperparameters=self.hyperparameters,
            callback=self.callback,
            track=self.track,
        )
        options = as_local_options(self.jobs, "1/1", None, True)
        folder.directory.mkdir(parents=True, exist_ok=True)
        write_text(file, as_toml(sweep))
        start(sweep, folder, options, console)
        page = write_report([folder.data()], folder.directory)
        show_status(folder)
        console.print(f"report: [bold]{escape.console(page)}[/]")
        if self.open:
            import webbrowser

            webbrowser.open(page.absolute().as_uri())
