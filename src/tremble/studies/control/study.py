"""Does PQR with the shipped settings solve small control problems? CartPole and LunarLander, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tremble.report import figures, tables
from tremble.studies.kit import Options, Results, Study
from tremble.studies.parts import draw_seeds, evaluated_cell, over_seeds, values, write_runs
from tremble.sweep_records import Cell


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
    return [
        evaluated_cell(
            task.env,
            "pqr",
            task.env,
            options.steps if options.quick else task.steps,
            hyperparameters=task.hyperparameters,
        )
        for task in TASKS
    ]


def draw(results: Results, options: Options) -> None:
    """Evaluations of every seed."""
    figure, axes = figures.new(1, len(TASKS), 5.5 * len(TASKS), 3.8)
    for axis, task in zip(axes, TASKS, strict=True):
        runs = results[task.env]
        draw_seeds(axis, runs[0].evaluated_at, values(runs, "evaluated_means"), figures.COLOURS["pqr"])
        axis.axhline(task.solved, color="#111111", linewidth=0.8, linestyle=":")
        axis.set(title=task.env, xlabel="steps", ylabel="mean return of 10 episodes")
    figures.save(figure, options.out / "control")


def row(task: Task, which: str, results: Results, options: Options) -> list[Any]:
    """A task by the newest or the best weights."""
    runs, score = results[task.env], f"{which}.mean"
    scores = values(runs, score)
    reached = sum(mean >= task.solved for mean in scores)
    enough = "no verdict" if options.quick else "yes" if reached >= NEEDED else "no"
    by_seed = ", ".join(f"{mean:.1f}" for mean in scores)
    about = [task.env, f"`{task.hyperparameters}`", f"{task.steps:,}", WEIGHTS[which], by_seed]
    return [*about, over_seeds(runs, score).text(), f"{task.solved:g}", f"{reached} of {len(scores)}", enough]


def analyse(results: Results, options: Options) -> str:
    """Figure, table and report."""
    draw(results, options)
    columns = {
        "newest_mean_of_100_episodes": "final.mean:.3f",
        "best_mean_of_100_episodes": "best.mean:.3f",
        "step_of_best": "best_step",
    }
    write_runs(options.out / "control.csv", results, columns)
    rows = [row(task, which, results, options) for task in TASKS for which in WEIGHTS]
    heads = ["environment", "column", "steps", "weights", "mean return of 100 episodes, by seed", "mean [95 %]"]
    heads += ["solved at", "solved", "enough"]
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
)
