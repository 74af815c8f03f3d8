"""LunarLander: the paper's four agents, ablations of where the criterion applies, and the settings of RL Zoo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval, mean_interval, verdict
from tremble.studies.kit import Cell, Options, Results, Study, seed_count, stored
from tremble.studies.lunarlander.noise import Policy, fly, random_policy
from tremble.training import checkpoint
from tremble.training.evaluation import Evaluation
from tremble.training.spec import RunSpec
from tremble.training.trained import load

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


@dataclass(frozen=True)
class LunarLanderResult:
    """Evaluations of one run."""

    seed: int
    steps: np.ndarray
    """Steps of the evaluations."""
    means: np.ndarray
    """Their mean returns."""
    final: Evaluation
    """100 episodes after training."""
    best: Evaluation
    """The same 100 with the weights of the best evaluation during training."""

    @property
    def diverged(self) -> bool:
        """Whether a value predicted at the start exceeds `BOUND`."""
        return bool(np.abs(self.final.predicted.mean(1)).max() > BOUND)

    @property
    def w1(self) -> float:
        """W_1 of predicted and observed discounted returns from the start."""
        return float(self.final.calibration()["w1"])

    @property
    def coverage(self) -> float:
        """Share of episodes whose discounted return is at most the predicted median."""
        return float(self.final.calibration()["coverage"]["0.5"])

    @property
    def best_step(self) -> int:
        """Step of the best evaluation; ties: the latest."""
        return int(self.steps[np.flatnonzero(self.means == self.means.max())[-1]])


def load_result(path: Path, seed: int, spec: RunSpec) -> LunarLanderResult:
    """Read a stored run."""
    contents = checkpoint.read(path)
    rows = contents.meta["evaluations"]
    final = contents.group("final")
    return LunarLanderResult(
        seed,
        np.array([row["step"] for row in rows]),
        np.array([row["mean"] for row in rows]),
        Evaluation(**final),
        Evaluation(**(contents.group("best") or final)),
    )


def cells(options: Options) -> list[Cell]:
    """Four agents with the paper's hyperparameters, PQR's criterion in one place only, and RL Zoo's settings."""
    every = {"evaluate_every": max(1000, options.steps // 20), "evaluate_episodes": 10, "record_every": 1000}

    def cell(label: str, agent: str, hyperparameters: str | None = None, **settings: Any) -> Cell:
        return Cell(label, agent, settings, {}, ENV, hyperparameters, every)

    made = [cell("qrdqn", "qrdqn"), cell("p_dltv", "p_dltv"), cell("pqr", "pqr")]
    made += [cell(f"dltv c={c:g}", "dltv", c=c) for c in (C_GRID[-1:] if options.quick else C_GRID)]
    if not options.quick:
        made += [cell(f"pqr {where} only", "pqr", criterion_for=where) for where in ("behaviour", "target")]
        made += [cell(f"{agent} zoo", agent, "sb3_zoo") for agent in ("qrdqn", "pqr")]
    return made


def colour_of(label: str) -> str:
    """The agent's colour."""
    return figures.COLOURS[label.split()[0]]


def draw(results: Results, options: Options) -> None:
    """Evaluation curves with intervals, one panel per cell; predicted and observed returns from the start."""
    columns = 5
    figure, panels = figures.new(-(-len(results) // columns), columns, 13, 5.6, sharey=True, sharex=True)
    for axis in panels.flat[len(results) :]:
        axis.set_visible(False)
    for axis, (label, flights) in zip(panels.flat, results.items(), strict=False):
        curves, steps = np.stack([f.means for f in flights]), flights[0].steps
        for curve in curves:
            axis.plot(steps, curve, color=colour_of(label), linewidth=0.8, alpha=0.5)
        axis.plot(steps, curves.mean(0), color=colour_of(label), linewidth=2.2)
        if len(flights) > 1:
            intervals = [mean_interval(list(column)) for column in curves.T]
            low, high = ([getattr(i, side) for i in intervals] for side in ("low", "high"))
            axis.fill_between(steps, low, high, color=colour_of(label), alpha=0.12, linewidth=0)
        axis.axhline(SOLVED, color="#111111", linewidth=0.8, linestyle=":")
        axis.set(title=label, ylim=(-500, 310))
        figures.thousands(axis.xaxis)
    figure.supxlabel("steps", fontsize=11)
    figure.supylabel("mean return of 10 episodes", fontsize=11)
    figures.save(figure, options.out / "curves")

    shown = [k for k in SHOWN if k in results]
    figure, panels = figures.new(1, len(shown), 3.6 * len(shown), 3.4)
    for axis, label in zip(np.atleast_1d(panels), shown, strict=True):
        sound = [f for f in results[label] if not f.diverged]
        title = label if len(sound) == len(results[label]) else f"{label}: {len(results[label]) - len(sound)} diverged"
        axis.set(title=title, xlabel="discounted return from the start", yticks=[])
        if not sound:
            axis.text(0.5, 0.5, "every seed diverged", ha="center", transform=axis.transAxes)
            continue
        predicted = np.concatenate([f.final.predicted.ravel() for f in sound])
        happened = np.concatenate([f.final.discounted for f in sound])
        low, high = np.quantile(np.concatenate([predicted, happened]), [0.005, 0.995])
        bins = np.linspace(low, high, 41)
        outline: dict[str, Any] = {"histtype": "step", "color": colour_of(label), "linewidth": 1.8}
        axis.hist(happened, bins, density=True, color="#9ca3af", alpha=0.7, label="Monte-Carlo")
        axis.hist(predicted, bins, density=True, label="predicted", **outline)
        axis.legend(fontsize=8)
    figures.save(figure, options.out / "calibration")


def sources_of_spread(options: Options) -> list[list[Any]]:
    """Sources of the variance of returns, one row per policy: the best weights of four agents, and random actions."""
    policies: dict[str, Policy] = {}
    for cell in cells(options):
        if cell.label in SHOWN:
            trained = load(stored(options.store, cell.spec(0, options.steps)).with_suffix(""), weights="best")
            policies[cell.label] = lambda obs, trained=trained: trained.predict(obs)[0]  # type: ignore[misc]
    policies["random actions"] = random_policy(N_ACTIONS)
    rows = []
    for label, policy in policies.items():
        flights = fly(policy, ENV, *((4, 3) if options.quick else (30, 10)))
        share, low, high = flights.start_share()
        rows.append(
            [
                label,
                f"{flights.returns.mean():.0f}",
                f"{flights.returns.std():.0f}",
                f"{share:.0%} [{low:.0%}, {high:.0%}]",
                f"{1 - share:.0%}",
                f"{(flights.ends > 0).mean():.0%} / {(flights.ends < 0).mean():.0%}",
                f"{flights.without_ends.std():.0f}",
            ]
        )
    return rows


def analyse(results: Results, options: Options) -> str:
    """Figures, tables and report."""
    draw(results, options)
    tables.write_csv(
        options.out / "final.csv",
        ["cell", "seed", "mean_return", "best_weights_mean_return", "std_return", "w1", "coverage_0.5"],
        [
            [
                k,
                f.seed,
                *(f"{x:.3f}" for x in (f.final.mean, f.best.mean, f.final.returns.std(), f.w1)),
                f"{f.coverage:.2f}",
            ]
            for k in results
            for f in results[k]
        ],
    )
    tables.write_csv(
        options.out / "curves.csv",
        ["cell", "seed", "step", "mean_return"],
        [
            [k, f.seed, int(t), f"{m:.3f}"]
            for k in results
            for f in results[k]
            for t, m in zip(f.steps, f.means, strict=True)
        ],
    )
    rows = []
    for label, flights in results.items():
        scores = [f.final.mean for f in flights]
        wild = sum(f.diverged for f in flights)
        rows.append(
            [
                label,
                mean_interval(scores).text(),
                ", ".join(f"{s:.0f}" for s in scores),
                mean_interval([f.best.mean for f in flights]).text(),
                f"{wild} of {len(flights)}" if wild else "",
                f"{np.mean([f.final.returns.std() for f in flights]):.0f}",
                tables.number(float(np.median([f.w1 for f in flights]))),
                f"{np.mean([f.coverage for f in flights]):.2f}",
            ]
        )
    claims = []
    for first, second in CLAIMS:
        if first in results and second in results:
            ours, theirs = ({f.seed: f.final.mean for f in results[k]} for k in (first, second))
            interval = difference_interval(ours, theirs)
            claims.append([f"{first} − {second}", "> 0", interval.text(), verdict(interval, quick=options.quick)])
    return f"""# LunarLander

{ENV} (v2, which the paper used, is gone from Gymnasium; v3 has the same dynamics and rewards without wind, and fixes the seeding);
{options.steps:,} steps, {seed_count(results)} seeds a cell from seed 0, the paper's column unless a row says otherwise.

![curves](curves.png)

Thin lines are single seeds, the band is the 95 % interval of their mean; the dotted line is 200.

## After training: 100 episodes, greedy by the mean

{tables.markdown(["cell", "mean return [95 %]", "seeds", "best weights [95 %]", "diverged", "spread within a seed", "W1 predicted – real (median)", "coverage of the median"], rows)}
*Best weights* are those of the best evaluation during training (10 episodes), evaluated in the same 100 episodes as the last ones.
*Diverged*: seeds whose values at the start are beyond ±{BOUND:,.0f} after training, more than any return.
*Spread* is the standard deviation over the episodes of one fixed policy. W1 and coverage are about the discounted return from the start.

## Sources of the variance of returns

The paper names three sources: the random push at the start, the noise of the engines, and the rewards of ±100 at the end. Below, the best weights of
seed 0 fly from {"4 starts, 3 times" if options.quick else "30 starts, 10 times"} from each: flights from one start share push and ground and differ in the engines' noise alone.
The shares are those of the variance (between starts and within a start; 95 % by a bootstrap over starts). The last column is the spread of the same
returns without the reward that ended the flight.

{tables.markdown(["policy", "mean return", "spread", "due to the start", "due to the engines", "landed / crashed", "spread without ±100"], sources_of_spread(options))}

## The paper's claim

Its figure has curves without numbers; the text says that the randomised agents, PQR and p-DLTV, outperform the others. Here a claim is *reproduced*
if the interval of the difference (taken seed by seed) lies above 0, *not reproduced* if below, *inconclusive* otherwise.

{tables.markdown(["difference", "paper", "ours [95 %]", "verdict"], claims)}
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
    load=load_result,
)
