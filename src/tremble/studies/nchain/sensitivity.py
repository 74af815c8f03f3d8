"""How far the learned return is from the truth as c, delta_0, beta and the reward's scale vary."""

from __future__ import annotations

from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, Interval, mean_interval
from tremble.studies.kit import Cell, Options, Results, Study
from tremble.studies.nchain.result import count_interval, load_result
from tremble.studies.nchain.settings import AGENTS

KNOBS = (("dltv", "c"), ("p_dltv", "c"), ("pqr", "delta_0"))
"""The size of exploration of each criterion."""
GRID = (1, 5, 10, 50, 100, 500, 1000, 5000)
"""Values of c and delta_0 in the paper's sensitivity figure."""
BETAS = (0.05, 0.1, 0.5, 1.0)
"""Values of beta in the paper's table of hyperparameters."""
SCALES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Factors on all rewards."""
PANELS = (
    ("size of exploration", "c or Δ₀", "W2 to N(8.1, 0.081²)"),
    ("concentration of PQR's draws", "β of PQR", ""),
    ("scale of rewards: distance", "reward scale", "W2 / scale"),
    ("scale of rewards: behaviour", "reward scale", "optimal actions"),
)
"""Title and labels of the axes."""


def values(options: Options) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Those of c and delta_0, of beta, and of the reward's scale; a few in the quick version."""
    return (GRID[::3], BETAS[::3], SCALES[::2]) if options.quick else (GRID, BETAS, SCALES)


def cells(options: Options) -> list[Cell]:
    """c or delta_0 for the three criteria, beta for PQR, reward scales for all, QR-DQN as the reference."""
    grid, betas, scales = values(options)
    found = [Cell("qrdqn", "qrdqn")]
    found += [Cell(f"{a} {knob}={v}", a, {knob: float(v)}) for v in grid for a, knob in KNOBS]
    found += [Cell(f"pqr beta={v}", "pqr", {"beta": v}) for v in betas]
    found += [Cell(f"{a} scale={v:g}", a, {}, {"reward_scale": v}) for v in scales for a in AGENTS]
    return found


def w2(results: Results, label: str) -> list[float]:
    """Final W2 to N(8.1, 0.081^2) of every seed, in units of the reward's scale."""
    return [o.w2_left / float(o.env.reward_scale) for o in results[label]]


def w2_interval(results: Results, label: str) -> Interval:
    """Its mean over seeds."""
    return mean_interval(w2(results, label), between=NOT_NEGATIVE)


def draw(results: Results, options: Options) -> None:
    """W2 against c or delta_0, beta and the reward scale; counts against the reward scale."""
    figure, grid_of_axes = figures.new(2, 2, 11, 7.2)
    size, beta, distance, behaviour = axes = grid_of_axes.ravel()
    reference = w2_interval(results, "qrdqn")
    size.axhline(reference.estimate, color=figures.COLOURS["qrdqn"], linewidth=2, label="QR-DQN (reference)")

    def line(axis: Any, x: tuple[float, ...], intervals: list[Interval], agent: str) -> None:
        middle = [i.estimate for i in intervals]
        error = np.array([i.errors for i in intervals]).T
        colour, name = figures.COLOURS[agent], figures.NAMES[agent]
        # Shifted, so that the intervals of agents do not overlap.
        shifted = np.array(x) * (1.0 if axis is beta else 1.12 ** (AGENTS.index(agent) - 1.5))
        axis.plot(shifted, middle, color=colour, marker="o", markersize=5, label=name)
        axis.errorbar(shifted, middle, error, color=colour, fmt="none", alpha=0.45)

    grid, betas, scales = values(options)
    for agent, knob in KNOBS:
        line(size, grid, [w2_interval(results, f"{agent} {knob}={v}") for v in grid], agent)
    line(beta, betas, [w2_interval(results, f"pqr beta={v}") for v in betas], "pqr")
    for agent in AGENTS:
        labels = [f"{agent} scale={v:g}" for v in scales]
        line(distance, scales, [w2_interval(results, label) for label in labels], agent)
        line(behaviour, scales, [count_interval(results[label], options.steps) for label in labels], agent)
    for axis, (title, x_label, y_label) in zip(axes, PANELS, strict=True):
        axis.set(title=title, xscale="log", xlabel=x_label, ylabel=y_label, ylim=(0, None))
    figures.thousands(behaviour.yaxis)
    handles = {h.get_label(): h for axis in axes for h in axis.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles))
    figures.save(figure, options.out / "sensitivity")


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    draw(results, options)
    tables.write_csv(
        options.out / "sensitivity.csv",
        ["cell", "seed", "w2_left_over_scale", "optimal_count"],
        [
            [cell, o.seed, f"{v:.5f}", o.count]
            for cell in results
            for o, v in zip(results[cell], w2(results, cell), strict=True)
        ],
    )
    reference = w2_interval(results, "qrdqn")
    grid, betas, scales = values(options)
    knob_rows, ranges = [], []
    for agent, knob in KNOBS:
        intervals = [w2_interval(results, f"{agent} {knob}={v}") for v in grid]
        knob_rows.append([figures.NAMES[agent], knob, *[interval.text(2) for interval in intervals]])
        best, worst = (extreme(interval.estimate for interval in intervals) for extreme in (min, max))
        ranges.append([figures.NAMES[agent], f"{best:.2f}", f"{worst:.2f}", f"{worst - best:.2f}"])
    scale_rows = []
    for agent in AGENTS:
        labels = [f"{agent} scale={v:g}" for v in scales]
        counts = [count_interval(results[label], options.steps).text() for label in labels]
        scale_rows.append([figures.NAMES[agent], "W2 / scale", *[w2_interval(results, x).text(2) for x in labels]])
        scale_rows.append(["", "count", *counts])
    return f"""# Sensitivity to the size of exploration and to the scale of rewards

2-Wasserstein distance between the learned return of (s2, left) after {options.steps:,} steps and N(8.1, 0.081²);
seeds 0 to {options.seeds - 1}; mean [95 % t interval]. QR-DQN, the reference: {reference.text(2)}.

![sensitivity](sensitivity.png)

## c and Δ₀

{tables.markdown(["agent", "knob", *[str(v) for v in grid]], knob_rows, 2)}
The paper's figure has no numbers; its claim is that PQR is robust to the choice and that the two bonus methods are not. Range of
the means over the grid:

{tables.markdown(["agent", "best", "worst", "range"], ranges)}
## β of PQR

{tables.markdown(["β", *[str(v) for v in betas]], [["W2", *[w2_interval(results, f"pqr beta={v}").text(2) for v in betas]]])}
## Is PQR free of the reward's scale, and is DLTV not?

Every reward is multiplied by the factor; W2 is divided by it again.

{tables.markdown(["agent", "", *[f"× {v:g}" for v in scales]], scale_rows, 2)}
Both scores, PQR's and DLTV's, are positively homogeneous: multiply all quantiles by b > 0 and the score is multiplied by b. So c is
as dimensionless as Δ₀, and any dependence on the scale comes from elsewhere: from Adam's fixed step size and the Huber threshold κ = 1,
which all agents share. What separates PQR is that its score cannot leave the range of the predicted returns.

Raw data: `sensitivity.csv`.
"""


STUDY = Study(
    "nchain-sensitivity",
    "W2 to the truth over c, delta_0, beta and reward scales",
    cells,
    analyse,
    seeds=5,
    load=load_result,
)
