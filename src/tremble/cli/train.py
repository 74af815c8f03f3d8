"""Training by command: a run from its beginning, and one that goes on."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import Assignments, TrackerNames, console
from tremble.cli.progress import shown_progress


@dataclass
class Train:
    """Train one agent and keep the run: settings, metrics, evaluations, weights, and the state to continue from.

    Repeating the command continues an interrupted run, with the same numbers as if it had not been interrupted;
    `tremble resume DIRECTORY` does the same without repeating anything.

    Examples:
      tremble train pqr --env CartPole-v1 --steps 50000
      tremble train qrdqn --env LunarLander-v3 --steps 100000 --hyperparameters control --set delta_0=5000
      tremble train pqr --env my_package.my_env:MyEnv --steps 20000 --evaluate-every 2000
      tremble train pqr --env atari/Pong --protocol dqn_zoo --steps 1000000
      tremble train qrdqn --env CartPole-v1 --set criterion=cvar --set eta=0.1 --set criterion_for=behaviour
    """

    agent: Positional[str]
    """Which agent; `tremble list` shows them."""
    env: str = "nchain"
    """Environment: a name of `tremble list`, a Gymnasium id (CartPole-v1), PACKAGE:ID for a package that registers its
    environments when it is imported (minigrid:MiniGrid-Empty-5x5-v0), module:Class for one of your own, or a game of
    Atari (atari/Pong)."""
    protocol: str | None = None
    """How an Atari game is played and learned (default: paper); `tremble protocols` shows all."""
    steps: int = 20_000
    """Environment steps."""
    seed: int = 0
    """One seed, one sequence of numbers."""
    out: Path | None = None
    """Run directory (default: runs/AGENT-ENV-sSEED)."""
    hyperparameters: str | None = None
    """Table of hyperparameters (default: the paper's for its own environments, `control` for all others)."""
    n_envs: int = 1
    """Environments stepped together."""
    parallel: bool = False
    """Give each environment a process of its own; worth it where a step takes milliseconds."""
    record_every: int = 500
    """Steps between two rows of metrics."""
    evaluate_every: int | None = None
    """Steps between two evaluations (default: a tenth of the run; none for environments that train inside XLA)."""
    evaluate_episodes: int = 10
    """Episodes of each evaluation."""
    evaluate_steps: int = 0
    """Length of each evaluation in steps, in place of a number of episodes."""
    final_episodes: int = 0
    """Episodes of one more evaluation after training, of the last and of the best weights, on seeds of its own."""
    evaluate_env: str | None = None
    """Another environment to evaluate in, by name as --env (default: as in training)."""
    threads: int | None = None
    """Threads of XLA (default: one per core). For several runs at a time give each one thread. The number changes the
    last digits of results; it is recorded, and `tremble resume` restores it."""
    replay_file: Path | None = None
    """Keep the pictures of Atari's replay in this file instead of in memory."""
    track: TrackerNames = ()
    """Send the metrics there too; needs pip install 'tremble[tracking]'."""
    set: Assignments = ()
    """Change a setting of the agent: --set delta_0=100 --set widths=128,128. See `tremble list --settings AGENT`."""
    env_set: Assignments = ()
    """Change an option of the environment: --env-set right_low=1 --env-set right_high=17."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.atari.games import is_atari
        from tremble.envs.registry import is_jax_env
        from tremble.settings import SettingsError, parse_assignments
        from tremble.training.machine import THREAD_VARIABLE
        from tremble.training.run import train

        if self.threads is not None:
            if self.threads < 1:
                raise SettingsError(f"--threads must be at least 1, got {self.threads}")
            os.environ[THREAD_VARIABLE] = str(self.threads)  # before JAX computes anything
        name = "".join("-" if c in "/:\\" or c.isspace() else c for c in f"{self.agent}-{self.env}-s{self.seed}")
        out = self.out or Path("runs") / name
        options = parse_assignments(self.env_set)
        if self.protocol is not None:
            if not is_atari(self.env):
                raise SettingsError(f"--protocol is about Atari (--env atari/Pong); {self.env} is none of its games")
            options["protocol"] = self.protocol
        every = self.evaluate_every
        if every is None:
            every = 0 if is_jax_env(self.env) else max(1, self.steps // 10)

        def go(how: dict[str, Any]) -> Any:
            return train(
                self.agent,
                self.env,
                steps=self.steps,
                seed=self.seed,
                out=out,
                hyperparameters=self.hyperparameters,
                env_options=options,
                n_envs=self.n_envs,
                parallel=self.parallel,
                replay_file=self.replay_file,
                record_every=self.record_every,
                evaluate_every=every,
                evaluate_episodes=self.evaluate_episodes,
                evaluate_steps=self.evaluate_steps,
                final_episodes=self.final_episodes,
                evaluate_env=self.evaluate_env,
                trackers=self.track,
                **how,
                **parse_assignments(self.set),
            )

        _show_run(go, f"{self.agent} on {self.env}", self.steps, out)


@dataclass
class Resume:
    """Continue an interrupted run to its end, or lengthen a finished one; everything needed is in its directory.

    Examples:
      tremble resume runs/pqr-CartPole-v1-s0
      tremble resume runs/pqr-CartPole-v1-s0 --steps 200000
    """

    run_directory: Positional[Path]
    """The directory given to `tremble train --out`."""
    steps: int | None = None
    """New length of the run, at least the present one; parameters and rows are those of a run of that length."""
    track: TrackerNames = ()
    """Send the metrics there too."""
    trust_code: bool = False
    """Import the environment, criterion or functions that the run's files name as module:name. Importing executes
    them: only for runs that come from somebody you trust."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.training.machine import restore_flags
        from tremble.training.run import resume
        from tremble.training.run_directory import RunFiles
        from tremble.training.spec import RunSpec

        described = RunFiles(self.run_directory).described()
        spec = described.record("spec", RunSpec)
        restore_flags(described.made_with()[-1])  # before JAX computes anything
        _show_run(
            lambda how: resume(
                self.run_directory, steps=self.steps, trackers=self.track, trust_code=self.trust_code, **how
            ),
            f"{spec.agent} on {spec.env}",
            self.steps or spec.steps,
            self.run_directory,
        )


def _show_run(go: Callable[[dict[str, Any]], Any], title: str, steps: int, out: Path) -> None:
    """Train while showing progress, then say what came of it."""
    with warnings.catch_warnings(), shown_progress(title, steps) as show:
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *rest: console.print(f"[yellow]warning:[/] {escape.console(message)}")
        run = go({"on_progress": show, "on_message": lambda text: console.print(f"[dim]{escape.console(text)}[/]")})
    if len(run.snapshots):
        _show_predictions(run.snapshots["atoms"][-1])
        if "optimal_share" in run.rows[-1] and run.log:
            console.print(f"optimal actions: {run.optimal_count:,} of {len(run.log['optimal']):,}")
    if run.evaluation_rows:
        steps, episodes = run.spec.evaluate_steps, run.spec.evaluate_episodes
        title = f"Evaluations, {f'{steps:,} steps' if steps else f'{episodes} episodes'} each"
        table = Table("step", "mean return", "min", "max", title=title)
        for row in run.evaluation_rows:
            returns = [x for x in row["returns"] if x is not None]
            shown = (row["mean"], min(returns, default=None), max(returns, default=None))
            table.add_row(f"{row['step']:,}", *["not finite" if x is None else f"{x:.2f}" for x in shown])
        console.print(table)
        finite = [row for row in run.evaluation_rows if row["mean"] is not None]
        best = max(finite, key=lambda row: (row["mean"], row["step"]), default=run.evaluation_rows[-1])
        if best is not run.evaluation_rows[-1]:
            console.print(f"best: {best['mean']:.2f} at step {best['step']:,}   tremble evaluate --weights best")
    where = escape.console(out)
    console.print(f"saved in [bold]{where}[/]" + ("" if run.log else f"   next: tremble evaluate {where}"))


def _show_predictions(atoms: Any) -> None:
    """A table of the return distributions ``[actions, atoms]`` of every action."""
    import jax
    import numpy as np

    from tremble.dist import ReturnDist

    def numbers(atoms: Any) -> tuple[Any, ...]:
        dist = ReturnDist(atoms)
        return dist.mean(), dist.std(), dist.quantile(0.05), dist.quantile(0.95)

    table = Table("action", "mean", "std", "5 %", "95 %", title="Return predicted at the start state")
    columns = jax.device_get(jax.jit(numbers)(atoms))  # one program; operation by operation it would be thirty
    for action, row in enumerate(np.transpose(columns)):
        table.add_row(str(action), *[f"{x:.3f}" for x in row])
    console.print(table)
