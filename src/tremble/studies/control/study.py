"""Does PQR with the shipped settings solve small control problems? CartPole and LunarLander, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import mean_interval
from tremble.studies.kit import Cell, Options, Results, Study
from tremble.studies.lunarlander.study import load_result


@dataclass(frozen=True)
class Task:
    """An environment, its hyperparameters, the length of runs and the threshold of a solved task."""

    env: str
    hyperparameters: str
    steps: int
    solved: float


TASKS = (Task("CartPole-v1", "control", 50_000, 475.0), Task("LunarLander-v3", "lunarlander_tuned", 100_000, 200.0))
WEIGHTS = {"final": "newest", "best": "best"}
NEEDED = 4
"""Seeds out of five that must solve a task."""


def cells(options: Options) -> list[Cell]:
    """PQR on each task."""
    made = []
    for task in TASKS:
        steps = options.steps if options.quick else task.steps
        run = {"evaluate_every": max(1000, steps // 20), "evaluate_episodes": 10, "record_every": 1000}
        made.append(Cell(task.env, "pqr", {}, {}, task.env, task.hyperparameters, run, steps))
    return made


def analyse(results: Results, options: Options) -> str:
    """Figure, table and report."""
    figure, axes = figures.new(1, len(TASKS), 5.5 * len(TASKS), 3.8)
    rows = []
    for axis, task in zip(axes, TASKS, strict=True):
        flights = results[task.env]
        colour = figures.COLOURS["pqr"]
        for flight in flights:
            axis.plot(flight.steps, flight.means, color=colour, alpha=0.3, linewidth=0.9)
        axis.plot(flights[0].steps, np.stack([f.means for f in flights]).mean(0), color=colour, linewidth=2)
        for which in ("final", "best"):
            scores = [getattr(f, which).mean for f in flights]
            reached = sum(score >= task.solved for score in scores)
            by_seed = ", ".join(f"{s:.1f}" for s in scores)
            enough = "no verdict" if options.quick else "yes" if reached >= NEEDED else "no"
            solved = [f"{task.solved:g}", f"{reached} of {len(scores)}", enough]
            length = f"{task.steps:,}"
            results_of = [WEIGHTS[which], by_seed, mean_interval(scores).text()]
            rows.append([task.env, f"`{task.hyperparameters}`", length, *results_of, *solved])
        axis.axhline(task.solved, color="#111111", linewidth=0.8, linestyle=":")
        axis.set(title=task.env, xlabel="steps", ylabel="mean return of 10 episodes")
        figures.thousands(axis.xaxis)
    figures.save(figure, options.out / "control")
    tables.write_csv(
        options.out / "control.csv",
        ["cell", "seed", "newest_mean_of_100_episodes", "best_mean_of_100_episodes", "step_of_best"],
        [
            [label, f.seed, f"{f.final.mean:.3f}", f"{f.best.mean:.3f}", f.best_step]
            for label, flights in results.items()
            for f in flights
        ],
    )
    heads = [
        "environment",
        "column",
        "steps",
        "weights",
        "mean return of 100 episodes, by seed",
        "mean [95 %]",
        "solved at",
        "solved",
        "enough",
    ]
    return f"""# Small control problems with the shipped settings

PQR. Final evaluation: 100 episodes by the greedy policy of the mean, with seeds that neither training nor its evaluations saw. *Newest* are the weights at the
end of training, *best* those of the best evaluation during training (10 episodes, every twentieth of the run), which a run keeps as `best.safetensors`. A task counts
as solved if at least {NEEDED} of 5 seeds reach the threshold.

{tables.markdown(heads, rows)}
![control](control.png)

Thin lines are single seeds, the thick one their mean. Raw data: `control.csv`.
"""


STUDY = Study(
    "control",
    "does PQR with the shipped settings solve CartPole and LunarLander?",
    cells,
    analyse,
    seeds=5,
    quick_seeds=1,
    quick_steps=12_000,
    load=load_result,
)
