"""Regret of tabular agents that learn from samples: the paper's criteria, RLSVI and UCB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from tremble.choosers import Chooser
from tremble.criteria import Mean, Optimism, Perturbed
from tremble.report import figures, tables
from tremble.studies.kit import Options, Results
from tremble.studies.parts import over_seeds, values, write_runs
from tremble.studies.theory.operator import RISKY_GRID
from tremble.theory import FiniteMDP, chain, deep_sea, risky_grid
from tremble.theory.episodes import Learner, regret
from tremble.theory.planners import Planner
from tremble.theory.quantile_learner import QuantileLearner
from tremble.worlds.deep_sea import DeepSea

N_QUANTILES = 32


@dataclass(frozen=True)
class Problem:
    """An MDP, and the constants that agents know."""

    mdp: FiniteMDP
    horizon: int
    size: float
    """Size of its rewards: the unit of learning rates, initial spread and bonuses."""
    bound: float
    """Largest possible return."""
    delta_0: float
    """Of PQR, as in the deep studies."""


def problems(options: Options) -> dict[str, Problem]:
    """Problems by title; only the first in the quick version."""
    found = {"N-Chain": Problem(chain(), 20, 10.0, 13.0, 500.0)}
    if not options.quick:
        found["Risky grid"] = Problem(risky_grid(RISKY_GRID), 25, 1.0, 1.0, 500.0)
        found["Deep Sea, N = 8"] = Problem(deep_sea(DeepSea(8)), 8, 1.0, 1.0, 5000.0)
    return found


def learners(problem: Problem, options: Options) -> dict[str, tuple[Learner, str, str]]:
    """Agent, colour and line style by name; every other one in the quick version."""
    gamma, horizon, size = float(problem.mdp.gamma), problem.horizon, problem.size
    pqr, drawn = Perturbed(delta_0=problem.delta_0, n_bins=N_QUANTILES), Optimism(draw_law="normal")

    table = partial(QuantileLearner, rate=0.5 * size, spread=0.3 * size, n_quantiles=N_QUANTILES)
    found: dict[str, tuple[Learner, str, str]] = {
        "QR, ε-greedy": (table(Mean(), Chooser(1.0, 0.01, 5000.0, False)), "#6b7280", "-"),
        "DLTV": (table(Optimism()), "#d1495b", "-"),
        "p-DLTV": (table(drawn), "#e09f3e", "-"),
        "p-DLTV, held": (table(drawn, resample_noise_every=True), "#e09f3e", "--"),
        "PQR": (table(pqr), "#2a6f97", "-"),
        "PQR, held": (table(pqr, resample_noise_every=True), "#2a6f97", "--"),
        "RLSVI": (Planner("rlsvi", 0.5 * size, problem.bound, gamma, horizon), "#3a7d44", "-"),
        "UCB": (Planner("ucb", 0.5 * size, problem.bound, gamma, horizon), "#7b2d8b", "-"),
    }
    return dict(list(found.items())[:: 2 if options.quick else 1])


@dataclass(frozen=True)
class Regrets:
    """Those of one seed, by episode."""

    seed: int
    by_episode: np.ndarray

    @property
    def episodes(self) -> int:
        """Their number."""
        return len(self.by_episode)

    @property
    def total(self) -> float:
        """Sum over all episodes."""
        return float(self.by_episode.sum())

    @property
    def late(self) -> float:
        """Mean over the last tenth of the episodes."""
        return float(self.by_episode[-max(1, self.episodes // 10) :].mean())


def run(options: Options) -> Results:
    """Regrets by problem and agent, two at a time, because each uses one core."""
    keys = jax.random.split(jax.random.key(0), options.seeds)

    def one(task: tuple[str, Problem, Learner]) -> tuple[str, list[Regrets]]:
        label, problem, learner = task
        optimal, episodes = problem.mdp.optimal_q(400), options.steps // problem.horizon
        play = jax.vmap(lambda key: regret(problem.mdp, optimal, learner, episodes, problem.horizon, key))
        return label, [Regrets(seed, row) for seed, row in enumerate(np.asarray(jax.jit(play)(keys)))]

    tasks = [
        (f"{title} | {name}", problem, learner)
        for title, problem in problems(options).items()
        for name, (learner, _, _) in learners(problem, options).items()
    ]
    with ThreadPoolExecutor(options.jobs or 2) as pool:
        return dict(pool.map(one, tasks))


def draw(found: Results, options: Options) -> None:
    """Total regret over episodes, mean over seeds with its standard error."""
    chosen = problems(options)
    figure, axes = figures.new(1, len(chosen), 4.6 * len(chosen) + 1, 4.2, squeeze=False)
    for axis, (title, problem) in zip(axes[0], chosen.items(), strict=True):
        for name, (_, colour, style) in learners(problem, options).items():
            totals = np.cumsum(values(found[f"{title} | {name}"], "by_episode"), 1)
            episode = np.unique(np.linspace(1, totals.shape[1], 200).astype(int))
            totals = totals[:, episode - 1]
            middle, error = totals.mean(0), totals.std(0) / np.sqrt(max(1, len(totals) - 1))
            axis.plot(episode, middle, color=colour, linestyle=style, linewidth=1.8, label=name)
            axis.fill_between(episode, middle - error, middle + error, color=colour, alpha=0.12, linewidth=0)
        axis.set(title=title, xlabel="episode", ylim=(0, None), xlim=(0, None))
    axes[0, 0].set(ylabel="total regret (band: one standard error)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    figures.save(figure, options.out / "regret")


def write_data(found: Results, options: Options) -> None:
    """Per seed."""
    columns = {"episodes": "episodes", "total_regret": "total:.4f"}
    columns |= {"regret_of_last_tenth_per_episode": "late:.5f"}
    write_runs(options.out / "regret.csv", found, columns, ["problem", "agent"])


def summary(found: Results, options: Options) -> str:
    """Total regret, and regret per episode at the end, by problem."""
    parts = []
    for title, problem in problems(options).items():
        rows = []
        for name in learners(problem, options):
            runs = found[f"{title} | {name}"]
            total, late = over_seeds(runs, "total").text(1), over_seeds(runs, "late").text(3)
            rows.append([name, total, late, sum(x < 0.01 * problem.size for x in values(runs, "late"))])
        header = ["agent", "total regret [95 %]", "per episode, last tenth [95 %]", f"solved (of {len(runs)})"]
        value = float(problem.mdp.optimal_q(400)[problem.mdp.start].max())
        about = f"**{title}**: {runs[0].episodes:,} episodes of at most {problem.horizon} steps; the optimum is worth {value:.3f}."
        parts.append(f"{about}\n\n{tables.markdown(header, rows)}")
    return "\n".join(parts)
