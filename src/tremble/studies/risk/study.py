"""Three meanings of "acting by CVaR", solved exactly on a small grid, and two of them learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from matplotlib.patches import Rectangle

from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE
from tremble.studies.kit import Options, Results, Study
from tremble.studies.parts import over_seeds, write_runs
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun
from tremble.theory import risky_grid
from tremble.theory.lattice import Lattice, followed
from tremble.theory.risk_greedy import FixedPoint, Greedy, acting_only, fixed_point, mean_greedy
from tremble.theory.static_cvar import StaticCVaR, static_cvar
from tremble.wasserstein import wasserstein
from tremble.worlds.risky_grid import MOVES, RiskyGrid

ETA = 0.25
LEARNED = {"(i) acting only": "behaviour", "(ii) risk-greedy": "both"}
"""Where an agent applies the criterion."""
SETTINGS: dict[str, Any] = {
    "criterion": "cvar",
    "eta": ETA,
    "gamma": 1.0,
    "n_quantiles": 50,
    "kappa": 0.02,
    "widths": [64],
    "learning_rate": 2e-3,
    "adam_epsilon": 1e-8,
    "target_update_interval": 100,
    "start_steps": 1_000,
    "epsilon_end": 0.3,
    "memory_size": 50_000,
}
"""QR-DQN; kappa is small relative to the rewards, because a larger Huber threshold biases the quantiles."""
COLOURS = {"mean": "#6b7280", "(i) acting only": "#e09f3e", "(ii) risk-greedy": "#2a6f97", "(iii) static": "#d1495b"}


@dataclass(frozen=True)
class Exact:
    """The exact solutions."""

    env: RiskyGrid
    lattice: Lattice
    greedy: dict[str, Greedy]
    """Those with a policy of the state alone, by name."""
    settled: FixedPoint
    from_mean: FixedPoint
    """The fixed point from another initial value; it need not be unique."""
    static: StaticCVaR

    def laws(self) -> dict[str, np.ndarray]:
        """Distribution of the return of each policy from the start."""
        found = {name: greedy.experienced[self.lattice.start] for name, greedy in self.greedy.items()}
        return found | {"(iii) static": self.static.returns}

    def predicted(self, name: str) -> np.ndarray:
        """The return from the start by which a policy of the state alone is greedy."""
        found = self.greedy[name]
        return followed(found.predicted, found.policy)[self.lattice.start]

    def cvar(self, law: np.ndarray) -> float:
        """CVaR of a distribution on the lattice."""
        return float(self.lattice.cvar(law, ETA))

    def experienced_cvar(self, policy: np.ndarray) -> float:
        """CVaR of the return of a policy from the start; NaN if the policy does not terminate."""
        try:
            z = self.lattice.returns(policy)
        except ValueError:
            return float("nan")
        return self.cvar(followed(z, policy)[self.lattice.start])


def cycling() -> FixedPoint:
    """The same backup on a grid with more slips and smaller gains, where it does not converge."""
    return fixed_point(Lattice.of(risky_grid(RiskyGrid(loss=-0.02, slip=0.2), gamma=1.0)), ETA, most=600)


def solve() -> Exact:
    """Compute all exact solutions."""
    env = RiskyGrid()
    lattice = Lattice.of(risky_grid(env, gamma=1.0))
    mean, settled = mean_greedy(lattice), fixed_point(lattice, ETA)
    greedy = {"mean": mean, "(i) acting only": acting_only(lattice, ETA), "(ii) risk-greedy": settled.found}
    from_mean = fixed_point(lattice, ETA, mean.predicted)
    return Exact(env, lattice, greedy, settled, from_mean, static_cvar(lattice, ETA))


def worst(quantiles: np.ndarray) -> float:
    """CVaR of a distribution given by quantiles in order."""
    weights = np.clip(ETA * len(quantiles) - np.arange(len(quantiles)), 0.0, 1.0)
    return float(quantiles @ weights / weights.sum())


@dataclass(frozen=True)
class Learned:
    """One trained agent, compared with its exact solution."""

    seed: int
    policy: np.ndarray
    """Greedy action for the predicted CVaR in each cell, and any action at the end."""
    w1: float
    """W1 between the predicted and the exact return at the start, for the exact action."""
    predicted_cvar: float
    """Predicted CVaR of the greedy action at the start."""
    cvar: float
    """Exact CVaR of the return of its policy from the start; NaN if the policy does not terminate."""
    agreement: float
    """Share of visits of the exact solution in which the action is the same."""


def cells(options: Options) -> list[Cell]:
    """QR-DQN with CVaR for behaviour alone, and for both."""
    decay = {"decay_updates": options.steps - SETTINGS["start_steps"], "epsilon_decay_steps": options.steps / 4}
    run = {"record_every": options.steps}
    return [
        Cell(name, "qrdqn", "risky-grid", SETTINGS | decay | {"criterion_for": where}, {}, "nchain", run)
        for name, where in LEARNED.items()
    ]


def judge(exact: Exact, name: str, run: FinishedRun) -> Learned:
    """What a trained agent does, beside the exact solution."""
    start, n = exact.lattice.start, exact.env.n_cells
    goal, predicted = exact.greedy[name].policy, exact.predicted(name)
    weight = exact.lattice.visits(goal)[:n]
    dist = run.agent().distribution(np.eye(n, dtype=np.float32))
    cvars = np.asarray(jax.jit(lambda d: d.cvar(ETA))(dist))
    policy = np.append(cvars.argmax(-1), 0)
    w1 = wasserstein(dist.atoms[start, goal[start]], exact.lattice.values, 1, weights_b=predicted)
    agreement = float((weight * (policy == goal)[:n]).sum() / weight.sum())
    return Learned(run.seed, policy, w1, float(cvars[start].max()), exact.experienced_cvar(policy), agreement)


def draw_policies(exact: Exact, learned: Results, options: Options) -> None:
    """The grid with the exact policies and those learned with the first seed."""
    env = exact.env
    shown = {f"{name}, exact": (found.policy, COLOURS[name]) for name, found in exact.greedy.items()}
    shown |= {f"{name}, learned": (runs[0].policy, COLOURS[name]) for name, runs in learned.items()}
    figure, axes = figures.new(1, len(shown), 3.1 * len(shown), 2.4)
    for axis, (title, (policy, colour)) in zip(axes, shown.items(), strict=True):
        bottom = env.height - 1
        for column in range(1, env.width - 1):
            axis.add_patch(Rectangle((column - 0.5, bottom - 0.5), 1, 1, color="#f3d9dc"))
            axis.text(column + 0.3, bottom + 0.38, "±", fontsize=9, color="#d1495b", ha="center", va="center")
        axis.add_patch(Rectangle((env.width - 1.5, bottom - 0.5), 1, 1, color="#d8ead9"))
        ends = np.isfinite(exact.experienced_cvar(policy))
        often = exact.lattice.visits(policy) if ends else np.ones(env.n_cells)
        for cell in range(env.n_cells - 1):
            row, column = divmod(cell, env.width)
            down, right = MOVES[int(policy[cell])]
            strength = 0.25 + 0.75 * min(float(often[cell]), 1.0)
            ends_at = (column + 0.32 * right, row + 0.32 * down), (column - 0.32 * right, row - 0.32 * down)
            look = {"arrowstyle": "-|>", "color": colour, "alpha": strength, "linewidth": 1.8}
            axis.annotate("", *ends_at, arrowprops=look)
        axis.set(xlim=(-0.5, env.width - 0.5), ylim=(bottom + 0.5, -0.5), title=title, xticks=[], yticks=[])
        axis.set_aspect("equal")
        axis.grid(False)
        for line, cells in ((axis.axvline, env.width), (axis.axhline, env.height)):
            for edge in range(cells + 1):
                line(edge - 0.5, color="#e5e7eb", linewidth=0.7, zorder=0)
    figures.save(figure, options.out / "policies")


def draw_returns(exact: Exact, options: Options) -> None:
    """Distribution functions of the returns from the start, and their CVaR."""
    figure, axis = figures.new(1, 1, 7, 3.8)
    for name, law in exact.laws().items():
        axis.step(exact.lattice.values, np.cumsum(law), where="post", color=COLOURS[name], label=name)
        axis.axvline(exact.cvar(law), color=COLOURS[name], linewidth=0.9, linestyle=":")
    axis.axhline(ETA, color="#111111", linewidth=0.7)
    axis.set(xlim=(-2.0, 2.3), ylim=(0, 1), xlabel="return from the start", ylabel="probability of less")
    axis.set_title(f"Returns of each policy (dotted: CVaR at {ETA:g})")
    axis.legend(fontsize=8, loc="upper left")
    figures.save(figure, options.out / "returns")


def exact_rows(exact: Exact) -> list[list[str]]:
    """Mean, predicted CVaR and actual CVaR of each solution."""
    believed = {name: exact.cvar(exact.predicted(name)) for name in exact.greedy} | {"(iii) static": exact.static.cvar}
    return [
        [name, f"{float(exact.lattice.mean(law)):.4f}", f"{believed[name]:.4f}", f"{exact.cvar(law):.4f}"]
        for name, law in exact.laws().items()
    ]


def singly(exact: Exact, learned: Results) -> str:
    """Number of runs that agree with the exact policy, and the small action gaps of the mean that (i) depends on."""
    alike = "; ".join(
        f"{sum(run.agreement > 0.98 for run in runs)} of {len(runs)} as {name}" for name, runs in learned.items()
    )
    above = exact.env.width * (exact.env.height - 1)
    means = np.sort(exact.lattice.mean(exact.greedy["mean"].predicted)[:above], -1)
    gaps = means[:, -1] - means[:, -2]
    return (
        f"Run by run, in more than 98 % of visits the same action: {alike}. What (i) is depends on the mean's policy, and above the straight way the mean hardly prefers anything: its two\n"
        f"best actions differ by {gaps.min():.4f} to {gaps.max():.4f}. A run whose means prefer others there looks at the returns of another policy, which takes the safe way, and then takes it too."
    )


def convergence(point: FixedPoint, beginning: str) -> str:
    """Convergence of the iteration, as a sentence."""
    if point.converged:
        return f"From {beginning} the risk-greedy backup converged in {point.iterations:,} iterations."
    how = f"its policies repeat with period {point.period}" if point.period else "its policies follow no short cycle"
    return f"From {beginning} the risk-greedy backup did **not** converge in {point.iterations:,} iterations: {how}."


def learned_rows(exact: Exact, learned: Results) -> list[list[str]]:
    """What agents predict and experience, beside the exact numbers."""
    rows = []
    for name, runs in learned.items():
        believed, real = (f"{exact.cvar(law):.3f}" for law in (exact.predicted(name), exact.laws()[name]))
        predicted, experienced = (over_seeds(runs, which).text(3) for which in ("predicted_cvar", "cvar"))
        w1, alike = over_seeds(runs, "w1", NOT_NEGATIVE).text(3), over_seeds(runs, "agreement", (0, 1)).text(2)
        rows.append([name, believed, predicted, real, experienced, w1, alike])
    return rows


def analyse(results: Results, options: Options) -> str:
    """Solve, judge the agents and report."""
    exact = solve()
    learned = {name: [judge(exact, name, run) for run in runs] for name, runs in results.items()}
    draw_policies(exact, learned, options)
    draw_returns(exact, options)
    names = {
        "agreement": "agreement",
        "w1_at_start": "w1",
        "predicted_cvar": "predicted_cvar",
        "experienced_cvar": "cvar",
    }
    columns = {column: f"{name}:.4f" for column, name in names.items()}
    write_runs(options.out / "learned.csv", learned, columns, ["solution"])
    by_value = zip(exact.lattice.values, *exact.laws().values(), strict=True)
    reached = [(value, masses) for value, *masses in by_value if max(masses) > 5e-9]
    rows = [[f"{value:.2f}", *(f"{mass:.8f}" for mass in masses)] for value, masses in reached]
    tables.write_csv(options.out / "returns.csv", ["return", *exact.laws()], rows)
    by_quantiles = {
        n: worst(exact.lattice.quantile_returns(exact.settled.found.policy, n)[exact.lattice.start])
        for n in (SETTINGS["n_quantiles"], 1000)
    }
    heads = ["", "CVaR predicted, exact", "learned [95 %]", "CVaR experienced, exact", "learned [95 %]"]
    heads += ["W1 of the prediction [95 %]", "same action, share of visits [95 %]"]
    same = np.allclose(exact.settled.found.experienced, exact.from_mean.found.experienced, atol=1e-6)
    others = {name: exact.greedy[name].policy != exact.greedy["mean"].policy for name in LEARNED}
    where = ", ".join(f"{name} in {int(other[: exact.env.n_cells - 1].sum())} cells" for name, other in others.items())
    return f"""# Three meanings of acting by CVaR

A grid of {exact.env.width} x {exact.env.height}: from the bottom left to the bottom right, where 1 is paid. A step costs {float(exact.env.step_cost):g}; cells on the straight way add or take {float(exact.env.stake):g} and give {-float(exact.env.loss):g} on average;
a move slips sideways with probability {float(exact.env.slip):g}. Undiscounted, so that returns are multiples of 0.01 and everything exact. CVaR is the mean of the worst {ETA:g} of returns.

![policies](policies.png)

*Arrows: the action in each cell, darker where it is visited more often.* The mean's policy differs from that of {where}.

## Exactly

{tables.markdown(["", "mean", "CVaR it predicts", "CVaR it experiences"], exact_rows(exact))}
1. **Acting only** looks at the returns of the mean's policy and picks the action with the best CVaR, again and again. It does not follow the policy whose returns it uses, so
   its predictions are not the returns it obtains.
2. **Risk-greedy**: the distributions are those of the policy that is greedy for them. {convergence(exact.settled, "Z = 0")} {convergence(exact.from_mean, "the mean's returns")}
   {"Both lead to the same returns." if same else "**They lead to different returns**: the fixed point is not unique."} This does not hold in general: on the same grid with slips of 0.2 and gambles that
   give 0.02, {convergence(cycling(), "Z = 0").replace("From", "from")}
3. **Static CVaR**, the best that any policy can reach, by dynamic programming over the state and the remaining amount to a threshold (here {exact.static.threshold:.2f}). Its policy
   depends on the rewards so far; the other two do not, and do not reach it.

![returns](returns.png)

## Learned

QR-DQN with {SETTINGS["n_quantiles"]} quantiles and the criterion CVaR, {options.steps:,} steps, {options.seeds} seeds, trained inside XLA: for behaviour alone, which should be (i), and for the bootstrap too, which should be (ii). The policy that
an agent learned is then evaluated exactly.

{tables.markdown(heads, learned_rows(exact, learned))}
That (ii) predicts too much is partly due to the representation: the same policy evaluated exactly, but with {SETTINGS["n_quantiles"]} quantiles a state, has a predicted CVaR of {by_quantiles[SETTINGS["n_quantiles"]]:.3f}, with 1,000
quantiles {by_quantiles[1000]:.3f}. Every backup keeps the quantiles of a mixture and loses its tails, the worst outcomes first.

{singly(exact, learned)}

The grid was chosen, before anything was trained on it, among two dozen with other stakes, losses and slips, as one on which (i) and (ii) are different policies; on many they are the same.

Raw data: `learned.csv`, `returns.csv`.
"""


STUDY = Study(
    "risk",
    "CVaR at acting, in the bootstrap and over the whole return: exact solutions on a risky grid, and trained agents",
    cells,
    analyse,
    seeds=5,
    quick_seeds=2,
    steps=40_000,
    quick_steps=4_000,
)
