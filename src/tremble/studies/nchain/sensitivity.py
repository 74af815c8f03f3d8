"""How far the learned return is from the truth as c, delta_0, beta and the reward's scale vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, Interval
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain.result import NChainResult, count_interval, load_result
from tremble.studies.nchain.settings import AGENTS
from tremble.studies.parts import over_seeds, write_runs
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun

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
    found += [Cell(f"{a} {knob}={v}", a, agent_options={knob: float(v)}) for v in grid for a, knob in KNOBS]
    found += [Cell(f"pqr beta={v}", "pqr", agent_options={"beta": v}) for v in betas]
    return found + [
        Cell(f"{a} scale={v:g}", a, env_options={} if v == 1.0 else {"reward_scale": v}) for v in scales for a in AGENTS
    ]


class Scaled(NChainResult):
    """A run with W2 to N(8.1, 0.081^2) in units of the reward's scale."""

    @property
    def w2(self) -> float:
        """That distance."""
        return self.w2_left / float(self.env.reward_scale)


def load(run: FinishedRun) -> Scaled:
    """Read a finished run."""
    return Scaled(**vars(load_result(run)))


def w2s(results: Results, name: str, points: Sequence[float]) -> list[Interval]:
    """Mean over seeds of the final distance, for each value of a knob: cells ``scale={:g}``."""
    return [over_seeds(results[name.format(v)], "w2", NOT_NEGATIVE) for v in points]


def draw(results: Results, options: Options) -> None:
    """W2 against c or delta_0, beta and the reward scale; counts against the reward scale."""
    figure, grid_of_axes = figures.new(2, 2, 11, 7.2)
    size, beta, distance, behaviour = axes = grid_of_axes.ravel()
    reference = over_seeds(results["qrdqn"], "w2")
    size.axhline(reference.estimate, color=figures.COLOURS["qrdqn"], linewidth=2, label="QR-DQN (reference)")

    def line(axis: Any, x: Sequence[float], intervals: list[Interval], agent: str) -> None:
        error = np.array([i.errors for i in intervals]).T
        # Shifted, so that the intervals of agents do not overlap.
        shifted = np.array(x) * (1.0 if axis is beta else 1.12 ** (AGENTS.index(agent) - 1.5))
        look: dict[str, Any] = {"color": figures.COLOURS[agent], "label": figures.NAMES[agent], "ecolor": "#c4c8ce"}
        axis.errorbar(shifted, [i.estimate for i in intervals], error, marker="o", markersize=5, **look)

    grid, betas, scales = values(options)
    for agent, knob in KNOBS:
        line(size, grid, w2s(results, f"{agent} {knob}={{}}", grid), agent)
    line(beta, betas, w2s(results, "pqr beta={}", betas), "pqr")
    for agent in AGENTS:
        line(distance, scales, w2s(results, f"{agent} scale={{:g}}", scales), agent)
        line(behaviour, scales, counts(results, agent, options), agent)
    for axis, (title, x_label, y_label) in zip(axes, PANELS, strict=True):
        axis.set(title=title, xscale="log", xlabel=x_label, ylabel=y_label, ylim=(0, None))
    figures.thousands(behaviour.yaxis)
    handles = {name: handle for axis in axes for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles))
    figures.save(figure, options.out / "sensitivity")


def counts(results: Results, agent: str, options: Options) -> list[Interval]:
    """Optimal actions at each reward scale."""
    return [count_interval(results[f"{agent} scale={v:g}"], options.steps) for v in values(options)[2]]


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    draw(results, options)
    columns = {"w2_left_over_scale": "w2:.5f", "optimal_count": "count"}
    write_runs(options.out / "sensitivity.csv", results, columns)
    grid, betas, scales = values(options)
    knob_rows, ranges, scale_rows = [], [], []
    for agent, knob in KNOBS:
        intervals = w2s(results, f"{agent} {knob}={{}}", grid)
        knob_rows.append([figures.NAMES[agent], knob, *(interval.text(2) for interval in intervals)])
        best, worst = (extreme(interval.estimate for interval in intervals) for extreme in (min, max))
        ranges.append([figures.NAMES[agent], f"{best:.2f}", f"{worst:.2f}", f"{worst - best:.2f}"])
    for agent in AGENTS:
        far = [interval.text(2) for interval in w2s(results, f"{agent} scale={{:g}}", scales)]
        scale_rows.append([figures.NAMES[agent], "W2 / scale", *far])
        scale_rows.append(["", "count", *(interval.text() for interval in counts(results, agent, options))])
    return f"""# Sensitivity to the size of exploration and to the scale of rewards

2-Wasserstein distance between the learned return of (s2, left) after {options.steps:,} steps and N(8.1, 0.081²);
seeds 0 to {options.seeds - 1}; mean [95 % t interval]. QR-DQN, the reference: {over_seeds(results["qrdqn"], "w2", NOT_NEGATIVE).text(2)}.

![sensitivity](sensitivity.png)

## c and Δ₀

{tables.markdown(["agent", "knob", *[str(v) for v in grid]], knob_rows, 2)}
The paper's figure has no numbers; its claim is that PQR is robust to the choice and that the two bonus methods are not. Range of
the means over the grid:

{tables.markdown(["agent", "best", "worst", "range"], ranges)}
## β of PQR

{tables.markdown(["β", *[str(v) for v in betas]], [["W2", *(x.text(2) for x in w2s(results, "pqr beta={}", betas))]])}
## Is PQR free of the reward's scale, and is DLTV not?

Every reward is multiplied by the factor; W2 is divided by it again.

{tables.markdown(["agent", "", *[f"× {v:g}" for v in scales]], scale_rows, 2)}
Both scores, PQR's and DLTV's, are positively homogeneous: multiply all quantiles by b > 0 and the score is multiplied by b. So c is
as dimensionless as Δ₀, and any dependence on the scale comes from elsewhere: from Adam's fixed step size and the Huber threshold κ = 1,
which all agents share. What separates PQR is that its score cannot leave the range of the predicted returns.

Raw data: `sensitivity.csv`.
"""


STUDY = Study(
    "nchain-sensitivity", "W2 to the truth over c, delta_0, beta and reward scales", cells, analyse, seeds=5, load=load
)
