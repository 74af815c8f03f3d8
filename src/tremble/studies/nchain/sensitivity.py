"""How far the learned return is from the truth as c, delta_0, beta and the reward's scale vary."""

from __future__ import annotations

from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, Interval, mean_interval
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import load_result
from tremble.studies.nchain.settings import AGENTS, BETAS, GRID, SCALES, sensitivity_cells

KNOBS = (("dltv", "c"), ("p_dltv", "c"), ("pqr", "delta_0"))


def w2(results: Results, label: str) -> list[float]:
    """Final W2 to N(8.1, 0.081^2) of every seed, in units of the reward's scale."""
    return [o.w2_left / float(o.env.reward_scale) for o in results[label]]


def w2_interval(results: Results, label: str) -> Interval:
    """Its mean over seeds."""
    return mean_interval(w2(results, label), between=NOT_NEGATIVE)


def present(results: Results, pattern: str, values: Any) -> list[Any]:
    """The values whose cell was run."""
    return [v for v in values if pattern.format(v) in results]


def draw(results: Results, options: Options) -> None:
    """W2 against c or delta_0, beta and the reward scale; counts against the reward scale."""
    figure, grid = figures.new(2, 2, 11, 7.2)
    axes = grid.ravel()
    reference = w2_interval(results, "qrdqn")
    axes[0].axhline(reference.estimate, color=figures.COLOURS["qrdqn"], linewidth=2, label="QR-DQN (reference)")

    def line(axis: Any, x: list[float], intervals: list[Interval], agent: str, alone: bool = False) -> None:
        middle = np.array([i.estimate for i in intervals])
        error = np.array([i.errors for i in intervals]).T
        colour, name = figures.COLOURS[agent], figures.NAMES[agent]
        # Shifted, so that the intervals of agents do not overlap.
        shifted = np.array(x) * (1.0 if alone else 1.12 ** (AGENTS.index(agent) - 1.5))
        axis.plot(shifted, middle, color=colour, marker="o", markersize=5, label=name)
        axis.errorbar(shifted, middle, error, color=colour, fmt="none", alpha=0.45)

    for agent, knob in KNOBS:
        values = present(results, f"{agent} {knob}={{}}", GRID)
        line(axes[0], values, [w2_interval(results, f"{agent} {knob}={v}") for v in values], agent)
    values = present(results, "pqr beta={}", BETAS)
    line(axes[1], values, [w2_interval(results, f"pqr beta={v}") for v in values], "pqr", alone=True)
    for agent in AGENTS:
        values = present(results, f"{agent} scale={{:g}}", SCALES)
        labels = [f"{agent} scale={v:g}" for v in values]
        line(axes[2], values, [w2_interval(results, label) for label in labels], agent)
        line(
            axes[3],
            values,
            [mean_interval([o.count for o in results[label]], between=(0, options.steps)) for label in labels],
            agent,
        )
    titles = ("c or Δ₀", "β of PQR", "reward scale", "reward scale")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", xlabel=title, ylim=(0, None))
    axes[0].set_ylabel("W2 to N(8.1, 0.081²)")
    axes[2].set_ylabel("W2 / scale")
    axes[3].set_ylabel("optimal actions")
    figures.thousands(axes[3].yaxis)
    axes[0].set_title("size of exploration")
    axes[1].set_title("concentration of PQR's draws")
    axes[2].set_title("scale of rewards: distance")
    axes[3].set_title("scale of rewards: behaviour")
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
    grid = [v for v in GRID if f"dltv c={v}" in results]
    knob_rows = [
        [figures.NAMES[agent], knob, *[w2_interval(results, f"{agent} {knob}={v}").text(2) for v in grid]]
        for agent, knob in KNOBS
    ]
    ranges = []
    for agent, knob in KNOBS:
        means = [float(np.mean(w2(results, f"{agent} {knob}={v}"))) for v in grid]
        ranges.append(
            [figures.NAMES[agent], f"{min(means):.2f}", f"{max(means):.2f}", f"{max(means) - min(means):.2f}"]
        )
    betas = present(results, "pqr beta={}", BETAS)
    scales = present(results, "pqr scale={:g}", SCALES)
    scale_rows = []
    for agent in AGENTS:
        cells = [f"{agent} scale={v:g}" for v in scales]
        scale_rows.append([figures.NAMES[agent], "W2 / scale", *[w2_interval(results, c).text(2) for c in cells]])
        scale_rows.append(
            [
                "",
                "count",
                *[mean_interval([o.count for o in results[c]], between=(0, options.steps)).text() for c in cells],
            ]
        )
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
    sensitivity_cells,
    analyse,
    seeds=5,
    load=load_result,
)
