"""Learning curves of run directories: returns of evaluations and of training episodes, for any environment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tremble import escape
from tremble.report import figures, tables
from tremble.report.curves import FRAMES_PER_STEP
from tremble.report.references import game_name, human_random
from tremble.report.run_reader import read_run
from tremble.settings import SettingsError

WINDOW = 20
"""Length of the moving average over training episodes."""
HEADINGS = ["run", "steps", "hours", "best evaluation", "last evaluation", f"last {WINDOW} of training"]
"""Columns of the table; `row` makes the cells."""


@dataclass(frozen=True)
class RunCurve:
    """Returns of one run over its steps."""

    spec: dict[str, Any]
    steps: int
    """Steps so far."""
    hours: float | None
    """Wall-clock time; None if it was not logged."""
    evaluations: list[tuple[int, list[float]]]
    """(step, returns of the episodes)."""
    episodes: list[tuple[int, float]]
    """(last step, return) of the training episodes."""

    @property
    def name(self) -> str:
        """Agent and seed."""
        return f"{figures.name_of(self.spec['agent'])}, seed {self.spec['seed']}"

    @property
    def means(self) -> np.ndarray:
        """Mean return of each evaluation."""
        return np.array([np.mean(returns) for _, returns in self.evaluations])

    @property
    def command(self) -> str:
        """The command that starts this run."""
        spec = self.spec
        words = ["tremble", "train", spec["agent"]]
        words += ["--env", spec["env"], "--steps", str(spec["steps"]), "--seed", str(spec["seed"])]
        words += ["--hyperparameters", spec["hyperparameters"]] if spec["hyperparameters"] else []
        for option, settings in (("--set", spec["agent_options"]), ("--env-set", spec["env_options"])):
            for name, value in settings.items():
                words += [option, f"{name}={_as_typed(value)}"]
        words += ["--n-envs", str(spec["n_envs"])] if spec["n_envs"] > 1 else []
        if spec["evaluate_every"]:
            words += ["--evaluate-every", str(spec["evaluate_every"])]
            length = "steps" if spec["evaluate_steps"] else "episodes"
            words += [f"--evaluate-{length}", str(spec[f"evaluate_{length}"])]
        return shlex.join(escape.plain(word) for word in words)


def load_curve(directory: Path | str) -> RunCurve:
    """Curves of a run, finished or not."""
    run = read_run(directory)
    evaluations = [(row["step"], [_number(x) for x in row["returns"]]) for row in run.evaluations]
    episodes = [(row["step"], _number(row["return"])) for row in run.episodes]
    if not evaluations and not episodes:
        raise SettingsError(f"{escape.plain(directory)} has neither evaluations nor finished episodes to draw")
    steps = int(run.metrics[-1]["step"]) if run.metrics else max(step for step, _ in [*evaluations, *episodes])
    hours = run.timing[-1]["seconds"] / 3600 if run.timing else None
    return RunCurve(run.spec, steps, hours, evaluations, episodes)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _as_typed(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list | dict | bool) else str(value)


def report_curves(curves: Sequence[RunCurve], out: Path) -> str:
    """Figure ``curves.png`` and ``.svg``, ``evaluations.csv`` and ``episodes.csv``; returns a report in markdown."""
    draw(curves, out / "curves")
    tables.write_csv(
        out / "evaluations.csv",
        ["env", "agent", "seed", "step", "episode", "return"],
        [
            [c.spec["env"], c.spec["agent"], c.spec["seed"], step, i, f"{x:g}"]
            for c in curves
            for step, returns in c.evaluations
            for i, x in enumerate(returns)
        ],
    )
    tables.write_csv(
        out / "episodes.csv",
        ["env", "agent", "seed", "step", "return"],
        [[c.spec["env"], c.spec["agent"], c.spec["seed"], step, f"{x:g}"] for c in curves for step, x in c.episodes],
    )
    commands = "\n".join(c.command for c in curves)
    return f"""# Learning curves

![curves](curves.png)

*Dots: episodes of an evaluation, the line their mean. Thin: mean of {WINDOW} training episodes, exploration included.*

{tables.markdown(HEADINGS, [map(escape.markdown, row(c)) for c in curves])}
```sh
{commands}
```

Hours are those of the clock, evaluations and pauses included. Raw data: `evaluations.csv`, `episodes.csv`.
"""


def row(curve: RunCurve) -> list[str]:
    """One row of the table."""
    frames = f" ({FRAMES_PER_STEP * curve.steps:,} frames)" if _is_atari(curve.spec["env"]) else ""
    best = last = trained = "none"
    if curve.evaluations:
        means, top = curve.means, int(curve.means.argmax())
        best, last = f"{means[top]:.1f} at step {curve.evaluations[top][0]:,}", f"{means[-1]:.1f}"
    if curve.episodes:
        trained = f"{np.mean([x for _, x in curve.episodes[-WINDOW:]]):.1f}"
    hours = "?" if curve.hours is None else f"{curve.hours:.1f}"
    return [
        escape.plain(f"{curve.name}, {curve.spec['env']}"),
        f"{curve.steps:,}{frames}",
        hours,
        best,
        last,
        trained,
    ]


def _is_atari(env: str) -> bool:
    return env.startswith("atari/")


def draw(curves: Sequence[RunCurve], path: Path) -> None:
    """A panel for each environment."""
    envs = list(dict.fromkeys(c.spec["env"] for c in curves))
    figure, axes = figures.new(1, len(envs), 6.2 * len(envs), 4.2, squeeze=False)
    for axis, env in zip(axes[0], envs, strict=True):
        here = [c for c in curves if c.spec["env"] == env]
        agents = [c.spec["agent"] for c in here]
        for curve, agent in zip(here, agents, strict=True):
            colour = figures.COLOURS.get(agent) if agents.count(agent) == 1 else None  # several seeds need several
            steps = [step for step, _ in curve.evaluations]
            (line,) = axis.plot(steps, curve.means, "-", lw=2, color=colour, label=escape.figure(curve.name))
            for step, returns in curve.evaluations:
                axis.plot([step] * len(returns), returns, "o", ms=3, alpha=0.35, mew=0, color=line.get_color())
            if len(curve.episodes) >= WINDOW:
                ends, gained = np.array(curve.episodes).T
                smooth = np.convolve(gained, np.full(WINDOW, 1 / WINDOW), "valid")
                axis.plot(ends[WINDOW - 1 :], smooth, lw=0.9, alpha=0.8, color=line.get_color(), label="training")
        if _is_atari(env):
            for level, style in (("random", ":"), ("human", "--")):
                height = float(human_random().loc[game_name(env), level])
                axis.axhline(height, color="#111111", lw=0.8, linestyle=style, label=level)
        axis.set(title=escape.figure(env), xlabel="steps")
        figures.thousands(axis.xaxis)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel("return")
    figures.save(figure, path)
