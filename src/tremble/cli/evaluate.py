"""`tremble evaluate`: episodes of a trained agent, in numbers."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import Assignments, console


@dataclass
class Evaluate:
    """Run episodes with a trained agent: their returns, and how well the predicted distributions are calibrated.

    Evaluation episodes use random numbers that training never uses. The result is also written to the run's directory.

    Examples:
      tremble evaluate runs/pqr-CartPole-v1-s0
      tremble evaluate runs/pqr-CartPole-v1-s0 --criterion p_dltv --epsilon 0.001 --episodes 200
      tremble evaluate runs/pqr-CartPole-v1-s0 --criterion cvar --set eta=0.1
    """

    run_directory: Positional[Path]
    """The directory of a run."""
    weights: Literal["newest", "best"] = "newest"
    """Weights of the newest checkpoint, or of the best evaluation during training."""
    episodes: int = 100
    """Number of episodes."""
    steps: int = 0
    """Length in steps, in place of a number of episodes (on Atari the protocol says whether the last one is cut)."""
    seed: int = 0
    """Seed of the evaluation."""
    criterion: str = "mean"
    """Criterion to act by: `mean`, `own` (the agent's, as at the end of training), or a name of `tremble list`."""
    set: Assignments = ()
    """Change a setting of the criterion: --set eta=0.1."""
    epsilon: float | None = None
    """Probability of a random action (default: 0; on Atari, what the protocol says)."""
    env_set: Assignments = ()
    """Change an option of the environment, to test the agent in a variant: --env-set right_high=17."""
    trust_code: bool = False
    """Import the environment, criterion or functions that the run's files name as module:name."""

    def run(self) -> None:
        """Execute the command."""
        import numpy as np
        from rich.progress import Progress

        from tremble.records import finite
        from tremble.report.statistics import mean_interval
        from tremble.settings import parse_assignments
        from tremble.training.checkpoint import write_text
        from tremble.training.consent import code_of_environment, require_consent
        from tremble.training.evaluation import evaluate
        from tremble.training.evaluation_env import evaluation_maker, evaluation_settings
        from tremble.training.trained import load

        agent = load(self.run_directory, weights=self.weights, trust_code=self.trust_code)
        assert agent.spec is not None
        require_consent(self.run_directory, code_of_environment(agent.spec), self.trust_code)
        options = parse_assignments(self.env_set)
        spec = dataclasses.replace(agent.spec, env_options=agent.spec.env_options | options)
        source = evaluation_maker(spec, spec.env, options=options)
        how = evaluation_settings(spec) | {"episodes": self.episodes, "steps": self.steps}
        epsilon = how["epsilon"] = how.get("epsilon", 0.0) if self.epsilon is None else self.epsilon
        settings = parse_assignments(self.set)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("episodes", total=None if self.steps else self.episodes)
            result = evaluate(
                agent,
                source,
                seed=self.seed,
                criterion=self.criterion,
                on_episode=lambda done: progress.update(bar, completed=done),
                **how,
                **settings,
            )
        interval = mean_interval(list(result.returns))
        console.print(
            f"return {result.mean:.2f}  95 % [{interval.low:.2f}, {interval.high:.2f}]  "
            f"median {np.median(result.returns):.2f}  min {result.returns.min():.2f}  max {result.returns.max():.2f}  "
            f"over {len(result.returns)} episodes of {escape.console(source.name)}",
            soft_wrap=True,
        )
        calibration = result.calibration()
        title = "Calibration: share of episodes at or below the predicted quantile"
        table = Table("level", *calibration["coverage"], title=title)
        table.add_row("share", *[f"{x:.2f}" for x in calibration["coverage"].values()])
        console.print(table)
        console.print(
            f"discounted return from the start: predicted {calibration['mean_predicted']:.3f}, "
            f"observed {calibration['mean_happened']:.3f};  W1 {calibration['w1']:.3f}, W2 {calibration['w2']:.3f}",
            soft_wrap=True,
        )
        if calibration["truncated"]:
            console.print(
                f"[yellow]{calibration['truncated']:.0%} of the episodes were cut by a time limit: their discounted "
                "returns lack what would have followed, which the predictions include.[/]",
                soft_wrap=True,
            )
        acted_by = "-".join([self.criterion, *self.set, *self.env_set]).replace("/", "-").replace(":", "-")
        best = "best-" if self.weights == "best" else ""
        out = self.run_directory / f"evaluation-{best}{acted_by}-e{epsilon:g}-s{self.seed}.json"
        row: dict[str, Any] = {"weights": self.weights, "step": agent.counts.transitions}
        row |= {"episodes": len(result.returns), "seed": self.seed, "criterion": self.criterion, "epsilon": epsilon}
        row |= {"env": source.name} | {f"env.{name}": value for name, value in options.items()}
        row |= {f"criterion.{name}": value for name, value in settings.items()}
        write_text(out, json.dumps(finite(row | result.row()), indent=1, allow_nan=False) + "\n")
        console.print(f"written to [bold]{escape.console(out)}[/]")
