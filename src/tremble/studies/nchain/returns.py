"""Learned return distributions over time against the ground truth: the paper's figure of densities."""

from __future__ import annotations

from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, density, mean_interval
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import NChainResult, load_result
from tremble.studies.nchain.settings import AGENTS, main_cells
from tremble.worlds.nchain import LEFT, RIGHT

ACTIONS = ((LEFT, "left"), (RIGHT, "right"))


def draw(results: Results, options: Options, seed: int) -> None:
    """Panels of agents by steps: densities of (s2, left) and (s2, right), the truth dashed, the criterion's scores as dots."""
    end = results[AGENTS[0]][0].steps[-1]
    times = [int(end * share) for share in (0.125, 0.25, 0.5, 0.75, 1.0)]
    figure, axes = figures.new(len(AGENTS), len(times), 13, 8.5, sharex=True)
    for row, agent in zip(axes, AGENTS, strict=True):
        run = results[agent][seed]
        snapshots = run.run.snapshots
        for axis, time in zip(row, times, strict=True):
            at = int(np.argmin(np.abs(run.steps - time)))  # the nearest record
            scores = snapshots["scores"][at][: 0 if agent == "qrdqn" else None]
            draw_panel(axis, run, snapshots["atoms"][at], scores)
            if agent == AGENTS[0]:
                axis.set_title(f"{run.steps[at]:,} steps")
        row[0].set_ylabel(figures.NAMES[agent], fontweight="bold", fontsize=12)
    for axis in axes[-1]:
        axis.set_xlabel("return from s2")
    for _, name in ACTIONS:
        axes[0][0].plot([], [], color=figures.COLOURS[name], linewidth=1.8, label=f"(s2, {name})")
    axes[0][0].plot([], [], "--", color="#444444", linewidth=1.0, label="ground truth")
    figure.legend(loc="outside lower center", ncols=3, fontsize=11)
    figures.save(figure, options.out / "returns")


def draw_panel(axis: Any, run: NChainResult, atoms: np.ndarray, scores: np.ndarray) -> None:
    """Densities on a root scale, because the truth of the left end is twenty times as high as the rest; scores below."""
    grid, top = np.linspace(2.5, 12.0, 700), 0.0
    for action, name in ACTIONS:
        colour, truth = figures.COLOURS[name], np.sqrt(run.truth(action).pdf(grid))
        curve = np.sqrt(density(atoms[action], grid, 0.05))
        axis.plot(grid, truth, "--", color=colour, linewidth=1.0, alpha=0.8)
        axis.fill_between(grid, curve, color=colour, alpha=0.18, linewidth=0)
        axis.plot(grid, curve, color=colour, linewidth=1.8)
        top = max(top, float(curve.max()), float(truth.max()))
    for action, name in ACTIONS if len(scores) else ():
        score, colour = float(scores[action]), figures.COLOURS[name]
        marker = ">" if score > grid[-1] else "<" if score < grid[0] else "o"
        face = colour if score == scores.max() else "white"
        x = np.clip(score, grid[0], grid[-1])
        axis.plot(x, -0.09 * top, marker, color=colour, markerfacecolor=face, clip_on=False)
    axis.set(ylim=(-0.18 * top, 1.08 * top), yticks=[], xlim=(grid[0], grid[-1]))
    axis.grid(axis="y", visible=False)


def summary(results: Results) -> str:
    """Mean, deviation and W2 of the learned distributions after the last step, over seeds."""
    rows = []
    for agent in AGENTS:
        outcomes = results[agent]
        for action, name in ACTIONS:
            truth = outcomes[0].truth(action)
            final = [o.atoms[action] for o in outcomes]
            mean = mean_interval([a.mean() for a in final])
            std = mean_interval([a.std() for a in final], between=NOT_NEGATIVE)
            w2 = mean_interval([truth.w2(a, 5) for a in final], between=NOT_NEGATIVE)
            cells = [mean.text(2), f"{truth.mean():.2f}", std.text(2), f"{truth.std():.2f}", w2.text(2)]
            rows.append([figures.NAMES[agent], name, *cells])
    header = ["agent", "action", "mean [95 %]", "truth", "deviation [95 %]", "truth", "W2 to the truth [95 %]"]
    return tables.markdown(header, rows, 2)


def analyse(results: Results, options: Options) -> str:
    """Figure, data and report."""
    draw(results, options, seed=0)
    tables.write_csv(
        options.out / "quantiles.csv",
        ["agent", "seed", "step", "action", *[f"q{i}" for i in range(results[AGENTS[0]][0].atoms.shape[-1])]],
        [
            [agent, o.seed, o.steps[-1], name, *[f"{x:.5f}" for x in o.atoms[action]]]
            for agent in AGENTS
            for o in results[agent]
            for action, name in ACTIONS
        ],
    )
    return f"""# Learned return distributions on N-Chain

{options.steps:,} steps, seeds 0 to {options.seeds - 1}; the figure shows seed 0, chosen in advance.

![returns](returns.png)

Solid: Gaussian kernel density of the learned quantiles at the start state (square-root scale, so that narrow and wide densities
fit in one figure). Dashed: the return of walking straight left,
γ² N(10, 0.1²) = N(8.1, 0.081²), and straight right, γ² (½ N(5, 0.1²) + ½ N(13, 0.1²)), with mean 7.29. Dots below: the
score the criterion gives to each of the two actions at that step, filled for the one it takes (neither, where a no-op scores higher); an arrow head at the border is
a score outside the axes, which only an additive bonus can produce.

{summary(results)}
The truth for *right* supposes that the agent walks on to the right end. An agent that has learned the optimal policy turns
back at s3 whenever that is worth more: from s3 the left end is worth 0.9³ · 10 = 7.29 and the right end 0.9 · 9 = 8.1, so it
does not, and the two agree.

Raw data: `quantiles.csv` (final quantiles of both actions, every seed).
"""


STUDY = Study(
    "nchain-returns",
    "learned return distributions over time against the ground truth",
    main_cells,
    analyse,
    load=load_result,
)
