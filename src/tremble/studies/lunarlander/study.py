"""LunarLander: the paper's four agents, ablations of where the criterion applies, and the settings of RL Zoo."""

from __future__ import annotations

from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import verdict
from tremble.studies.kit import Options, Results, Study
from tremble.studies.lunarlander.noise import Policy, fly, random_policy
from tremble.studies.parts import (
    difference,
    draw_seeds,
    evaluated_cell,
    over_seeds,
    seed_count,
    values,
    write_curves,
    write_runs,
)
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun

ENV = "LunarLander-v3"
N_ACTIONS = 4
SOLVED = 200.0
BOUND = 1_000.0
"""Larger than any return; a prediction beyond it has diverged."""
C_GRID = (0.5, 5.0, 50.0)
"""Values of c; the paper does not state it here."""
SHOWN = ("qrdqn", "dltv c=50", "p_dltv", "pqr")
"""Cells whose predictions are drawn and whose policies are used to find the sources of variance."""
CLAIMS = (("pqr", "qrdqn"), ("p_dltv", "qrdqn"), ("pqr", "dltv c=50"), ("p_dltv", "dltv c=50"))
"""The paper shows curves without numbers; its text says that the randomised agents outperform the others."""


def cells(options: Options) -> list[Cell]:
    """Four agents with the paper's hyperparameters, PQR's criterion in one place only, and RL Zoo's settings."""

    def cell(label: str, agent: str, hyperparameters: str | None = None, **settings: Any) -> Cell:
        return evaluated_cell(label, agent, ENV, options.steps, settings, hyperparameters=hyperparameters)

    made = [cell(agent, agent) for agent in ("qrdqn", "p_dltv", "pqr")]
    made += [cell(f"dltv c={c:g}", "dltv", c=c) for c in (C_GRID[-1:] if options.quick else C_GRID)]
    if not options.quick:
        made += [cell(f"pqr {where} only", "pqr", criterion_for=where) for where in ("behaviour", "target")]
        made += [cell(f"{agent} zoo", agent, "sb3_zoo") for agent in ("qrdqn", "pqr")]
    return made


def diverged(run: FinishedRun) -> bool:
    """Whether a value predicted at the start is beyond `BOUND`, or no number."""
    return not np.abs(run.final.predicted.mean(1)).max() <= BOUND


def colour_of(label: str) -> str:
    """The agent's colour."""
    return figures.COLOURS[label.split()[0]]


def draw_curves(results: Results, options: Options) -> None:
    """Evaluations with intervals, one panel per cell."""
    columns = 5
    figure, panels = figures.new(-(-len(results) // columns), columns, 13, 5.6, sharey=True, sharex=True)
    for axis in panels.flat[len(results) :]:
        axis.set_visible(False)
    for axis, (label, runs) in zip(panels.flat, results.items(), strict=False):
        draw_seeds(axis, runs[0].evaluated_at, values(runs, "evaluated_means"), colour_of(label), band=True)
        axis.axhline(SOLVED, color="#111111", linewidth=0.8, linestyle=":")
        axis.set(title=label, ylim=(-500, 310))
    figure.supxlabel("steps", fontsize=11)
    figure.supylabel("mean return of 10 episodes", fontsize=11)
    figures.save(figure, options.out / "curves")


def draw_calibration(results: Results, options: Options) -> None:
    """Predicted and observed returns from the start."""
    shown = [label for label in SHOWN if label in results]
    figure, panels = figures.new(1, len(shown), 3.6 * len(shown), 3.4, squeeze=False)
    for axis, label in zip(panels[0], shown, strict=True):
        sound, n = [run for run in results[label] if not diverged(run)], len(results[label])
        title = label if len(sound) == n else f"{label}: {n - len(sound)} diverged"
        axis.set(title=title, xlabel="discounted return from the start", yticks=[])
        if not sound:
            axis.text(0.5, 0.5, "every seed diverged", ha="center", transform=axis.transAxes)
            continue
        predicted = np.concatenate([run.final.predicted.ravel() for run in sound])
        happened = np.concatenate(values(sound, "final.discounted"))
        low, high = np.quantile(np.concatenate([predicted, happened]), [0.005, 0.995])
        bins = np.linspace(low, high, 41)
        outline: dict[str, Any] = {"histtype": "step", "color": colour_of(label), "linewidth": 1.8}
        axis.hist(happened, bins, density=True, color="#9ca3af", alpha=0.7, label="Monte-Carlo")
        axis.hist(predicted, bins, density=True, label="predicted", **outline)
        axis.legend(fontsize=8)
    figures.save(figure, options.out / "calibration")


def sources_of_spread(results: Results, options: Options) -> str:
    """Sources of the variance of returns, one row per policy: the best weights of four agents, and random actions."""
    policies: dict[str, Policy] = {}
    for label in [label for label in SHOWN if label in results]:
        agent = results[label][0].agent("best")
        policies[label] = lambda obs, agent=agent: agent.predict(obs)[0]  # type: ignore[misc]
    policies["random actions"] = random_policy(N_ACTIONS)
    rows = []
    for label, policy in policies.items():
        flights = fly(policy, ENV, *((4, 3) if options.quick else (30, 10)))
        share, low, high = flights.start_share()
        shares = [f"{share:.0%} [{low:.0%}, {high:.0%}]", f"{1 - share:.0%}"]
        ends = f"{(flights.ends > 0).mean():.0%} / {(flights.ends < 0).mean():.0%}"
        spread = f"{flights.without_ends.std():.0f}"
        rows.append([label, f"{flights.returns.mean():.0f}", f"{flights.returns.std():.0f}", *shares, ends, spread])
    header = ["policy", "mean return", "spread", "due to the start", "due to the engines", "landed / crashed"]
    return tables.markdown([*header, "spread without ±100"], rows)


def score_table(results: Results) -> str:
    """One row per cell."""
    rows = []
    for label, runs in results.items():
        wild = sum(map(diverged, runs))
        rows.append(
            [
                label,
                over_seeds(runs, "final.mean").text(),
                ", ".join(f"{score:.0f}" for score in values(runs, "final.mean")),
                over_seeds(runs, "best.mean").text(),
                f"{wild} of {len(runs)}" if wild else "",
                f"{np.mean(values(runs, 'final.std')):.0f}",
                tables.number(float(np.median(values(runs, "final.w1")))),
                f"{np.mean(values(runs, 'final.median_coverage')):.2f}",
            ]
        )
    header = ["cell", "mean return [95 %]", "seeds", "best weights [95 %]", "diverged", "spread within a seed"]
    return tables.markdown([*header, "W1 predicted – real (median)", "coverage of the median"], rows)


def claim_table(results: Results, options: Options) -> str:
    """The paper's claims."""
    rows = []
    for first, second in CLAIMS:
        if first in results and second in results:
            interval = difference(results[first], results[second], "final.mean")
            rows.append([f"{first} − {second}", "> 0", interval.text(), verdict(interval, quick=options.quick)])
    return tables.markdown(["difference", "paper", "ours [95 %]", "verdict"], rows)


def analyse(results: Results, options: Options) -> str:
    """Figures, tables and report."""
    draw_curves(results, options)
    draw_calibration(results, options)
    columns = {
        "mean_return": "final.mean:.3f",
        "best_weights_mean_return": "best.mean:.3f",
        "std_return": "final.std:.3f",
        "w1": "final.w1:.3f",
        "coverage_0.5": "final.median_coverage:.2f",
    }
    write_runs(options.out / "final.csv", results, columns)
    write_curves(options.out / "curves.csv", results, "evaluated_at", {"mean_return": "evaluated_means:.3f"})
    return f"""# LunarLander

{ENV} (v2, which the paper used, is gone from Gymnasium; v3 has the same dynamics and rewards without wind, and fixes the seeding);
{options.steps:,} steps, {seed_count(results)} seeds a cell from seed 0, the paper's column unless a row says otherwise.

![curves](curves.png)

Thin lines are single seeds, the band is the 95 % interval of their mean; the dotted line is 200.

## After training: 100 episodes, greedy by the mean

{score_table(results)}
*Best weights* are those of the best evaluation during training (10 episodes), evaluated in the same 100 episodes as the last ones.
*Diverged*: seeds whose values at the start are beyond ±{BOUND:,.0f} after training, more than any return.
*Spread* is the standard deviation over the episodes of one fixed policy. W1 and coverage are about the discounted return from the start.

## Sources of the variance of returns

The paper names three sources: the random push at the start, the noise of the engines, and the rewards of ±100 at the end. Below, the best weights of
seed 0 fly from {"4 starts, 3 times" if options.quick else "30 starts, 10 times"} from each: flights from one start share push and ground and differ in the engines' noise alone.
The shares are those of the variance (between starts and within a start; 95 % by a bootstrap over starts). The last column is the spread of the same
returns without the reward that ended the flight.

{sources_of_spread(results, options)}

## The paper's claim

Its figure has curves without numbers; the text says that the randomised agents, PQR and p-DLTV, outperform the others. Here a claim is *reproduced*
if the interval of the difference (taken seed by seed) lies above 0, *not reproduced* if below, *inconclusive* otherwise.

{claim_table(results, options)}
![calibration](calibration.png)

The `zoo` rows use the settings published for QR-DQN on LunarLander from which the paper's column descends: bursts of 256 updates every 256 steps,
learning rate falling to zero, γ = 0.995. In the paper's column the target is copied at every step and one update is made per step, so there is
no target network in effect.

Raw data: `final.csv`, `curves.csv`.
"""


STUDY = Study(
    "lunarlander",
    "the paper's four agents on LunarLander-v3: curves, final scores, calibration",
    cells,
    analyse,
    seeds=3,
    quick_seeds=1,
    steps=100_000,
    quick_steps=12_000,
)
