"""Every preset on N-Chain: does a randomised criterion help with every representation of the return?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble.presets import PRESETS, make
from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, Direction, Interval, direction
from tremble.settings import describe
from tremble.studies.kit import Options, Results, Study, collect, search_of
from tremble.studies.nchain.result import COLUMNS, count_interval, load_result
from tremble.studies.parts import difference, error_bar, over_seeds, seed_count, values, write_runs
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun

RATES = (5e-5, 2e-4, 1e-3)
"""Candidate learning rates; the first is the paper's."""
SEARCH_SEEDS, FIRST_SEARCH_SEED = 2, 1_000
SIZES: dict[str, Any] = {
    "n_quantiles": 32,
    "n_online": 8,
    "n_target": 8,
    "n_choose": 16,
    "n_fractions": 16,
    "n_particles": 16,
}
"""Number of atoms of each representation, small so that the study takes an hour; C51 keeps its 51."""
EFFECTS: dict[Direction, str] = {"above": "**helps**", "below": "**hurts**", "undecided": "no difference shown"}
"""By where the interval of the difference lies."""
HEAD = ("agent", "learning_rate")
SHADES = {1: "#2a6f97", -1: "#d1495b", 0: "#6b7280"}
"""Colours in the figure, by its sign."""
QUICK = ("dqn", "qrdqn", "pqr", "c51", "pqr_c51", "prioritised_dqn")


def agents(options: Options) -> list[str]:
    """All presets; a few in the quick version."""
    return [name for name in PRESETS if not options.quick or name in QUICK]


def pairs() -> list[tuple[str, str]]:
    """Pairs of presets with the same representation: PQR's criterion, and the published exploration."""
    on_others = [(name, name.removeprefix("pqr_")) for name in PRESETS if name.startswith("pqr_")]
    return [("pqr", "qrdqn"), *((one, other) for one, other in on_others if other in PRESETS)]


def settings(name: str) -> dict[str, Any]:
    """The sizes that apply to an agent; a perturbation has as many bins as there are atoms for acting."""
    known = {path.rsplit(".", 1)[-1] for path in describe(make(name))}
    sizes = {key: value for key, value in SIZES.items() if key == "n_quantiles" or key in known}
    atoms = [SIZES[key] for key in ("n_choose", "n_fractions", "n_particles") if key in known]
    return sizes | ({"n_bins": atoms[0]} if atoms and "n_bins" in known else {})


def candidate(name: str, rate: float, label: str | None = None) -> Cell:
    """An agent with a learning rate."""
    return Cell(label or f"{name} | {rate:g}", name, agent_options=settings(name) | {"learning_rate": rate})


def search_cells(options: Options) -> list[Cell]:
    """Every agent with every rate."""
    return [candidate(name, rate) for name in agents(options) for rate in (RATES[1:] if options.quick else RATES)]


@dataclass(frozen=True)
class Tried:
    """A run of the search."""

    seed: int
    count: int


def load_count(run: FinishedRun) -> Tried:
    """Optimal actions of a finished run."""
    return Tried(run.seed, int(run.log["optimal"].sum()))


def searched(options: Options) -> Results:
    """Finished runs of the search."""
    return {label: runs for label, runs in collect(*search_of(STUDY, options)).items() if runs}


def chosen(options: Options) -> dict[str, float]:
    """The rate with most optimal actions on the seeds of the search (ties: the lowest); the paper's without a search."""
    found = {
        tuple(label.split(" | ")): float(np.mean(values(runs, "count"))) for label, runs in searched(options).items()
    }

    def merit(name: str, rate: float) -> tuple[float, float]:
        return found.get((name, f"{rate:g}"), -1.0), -rate

    return {name: max(RATES, key=lambda rate: merit(name, rate)) for name in agents(options)}


def partners(rates: dict[str, float]) -> dict[tuple[str, str], str]:
    """By pair, the label of the cell in which the second agent has the rate of the first."""
    return {
        (one, other): other if rates[one] == rates[other] else f"{other} at {rates[one]:g}"
        for one, other in pairs()
        if one in rates and other in rates
    }


def cells(options: Options) -> list[Cell]:
    """Every agent with its chosen rate, and the second agent of each pair with the rate of the first if they differ."""
    rates = chosen(options)
    further = [candidate(other, rates[one], label) for (one, other), label in partners(rates).items() if label != other]
    return [candidate(name, rates[name], name) for name in agents(options)] + further


def colour(name: str) -> str:
    """The paper's agents have their own colour; others PQR's if they use its criterion, else grey."""
    return figures.COLOURS.get(name, figures.COLOURS["pqr"] if name.startswith("pqr") else figures.COLOURS["qrdqn"])


def draw(results: Results, own_rates: dict[str, Interval], one_rate: list[Interval], options: Options) -> None:
    """Counts of every agent and seed, sorted by mean; and the differences due to PQR's criterion.

    Differences at one rate are coloured by sign; those with each agent at its own rate are grey, above them.
    """
    ranked = sorted(results, key=lambda name: np.mean(values(results[name], "count")))
    figure, (left, right) = figures.new(1, 2, 11.5, 0.29 * len(ranked) + 1.6, width_ratios=[3, 2])
    for row, name in enumerate(ranked):
        counts = values(results[name], "count")
        left.scatter(counts, [row] * len(counts), s=12, color=colour(name), alpha=0.35, linewidths=0)
        error_bar(left, count_interval(results[name], options.steps), row, colour(name), across=True)
    left.set_yticks(range(len(ranked)), ranked)
    left.set(title="Optimal actions: seeds, mean, 95 %", xlim=(0, options.steps))
    for row, (own, at_one) in enumerate(reversed(list(zip(own_rates.values(), one_rate, strict=True)))):
        error_bar(right, own, row + 0.14, "#b6bcc6", across=True)
        error_bar(right, at_one, row - 0.14, SHADES[at_one.sign], across=True)
    right.axvline(0, color="#111111", linewidth=0.8)
    right.set_yticks(range(len(own_rates)), list(reversed(own_rates)))
    title = "What the randomised criterion adds:\nboth at one rate (pale: each at its own)"
    right.set(title=title, ylim=(-0.6, len(own_rates) - 0.4))
    for axis in (left, right):
        figures.thousands(axis.xaxis)
    figures.save(figure, options.out / "family")


def tally(own_rates: Sequence[Interval], one_rate: Sequence[Interval]) -> str:
    """Number of pairs in which the criterion helps and hurts, as a sentence."""
    signs = [[interval.sign for interval in found] for found in (own_rates, one_rate)]
    helps, hurts = ([found.count(sign) for found in signs] for sign in (1, -1))
    return f"""Of {len(own_rates)} pairs, the criterion helps in {helps[0]} and hurts in {hurts[0]} if each has the rate that the search chose for it, and helps in {helps[1]} and hurts in {hurts[1]} if both have that
of the first. """


def analyse(results: Results, options: Options) -> str:
    """Figures, data and report."""
    rates = chosen(options)
    alike, everything = partners(rates), searched(options)
    write_runs(options.out / "search.csv", everything, {"optimal_count": "count"}, HEAD)
    write_runs(
        options.out / "family.csv",
        {f"{c.agent} | {c.agent_options['learning_rate']}": results[c.label] for c in cells(options)},
        COLUMNS,
        HEAD,
    )
    own = {f"{a} − {b}": difference(results[a], results[b], "count") for a, b in alike}
    at_one = [difference(results[a], results[label], "count") for (a, _), label in alike.items()]
    results = {name: results[name] for name in agents(options)}
    draw(results, own, at_one, options)
    rows = []
    for name in sorted(results, key=lambda n: -np.mean(values(results[n], "count"))):
        runs, counts = results[name], values(results[name], "count")
        w2 = over_seeds(runs, "w2_left", NOT_NEGATIVE).text(2) if runs[0].w2_text else ""
        spread, seconds = f"{min(counts):,} … {max(counts):,}", f"{np.mean(values(runs, 'seconds')):.0f}"
        rows.append([f"`{name}`", f"{rates[name]:g}", count_interval(runs, options.steps).text(), spread, w2, seconds])

    def judged(interval: Interval) -> list[str]:
        return [interval.text(), EFFECTS.get(direction(interval, quick=options.quick), "no verdict")]

    verdicts = [
        [name, *judged(ours), f"{rates[agent]:g}", *judged(both)]
        for (agent, _), (name, ours), both in zip(alike, own.items(), at_one, strict=True)
    ]
    by_rate, seeds = Counter(rates.values()), sorted({len(runs) for runs in everything.values()})
    return f"""# The whole family on N-Chain

Every preset with the paper's N-Chain column, {options.steps:,} steps, {seed_count(results)} seeds from 0. The learning rate of each agent is the one of {", ".join(f"{r:g}" for r in RATES)} with most
optimal actions on {"–".join(map(str, seeds)) or "no"} other seeds (from {FIRST_SEARCH_SEED:,}); it was chosen {", ".join(f"{by_rate[r]} times {r:g}" for r in RATES)}. Sizes: 32 quantiles, 51 categories on
[−4, 16], which covers the returns, 8 sampled levels (16 to choose), 16 fractions, 16 particles. Agents with prioritised or n-step replay run on the host loop, all others inside XLA.

![family](family.png)

{tables.markdown(["agent", "learning rate", "optimal actions [95 %]", "single seeds", "W2 to the truth of (s2, left) [95 %]", "seconds a run"], rows)}
*Seconds* are processor time of one core on the machine of the run, compilation included where there was any; they do not belong to the results.

## Does randomising the criterion help?

Each pair shares its representation, its sizes and its seeds; one explores by PQR's random criterion, the other as published (ε-greedy, noisy layers). *Helps*: the 95 % interval of
the difference, taken seed by seed, lies above 0; *hurts*: below.

{tables.markdown(["difference in optimal actions", "each at its own rate [95 %]", "verdict", "rate", "both at this rate [95 %]", "verdict"], verdicts)}
{"" if options.quick else tally(list(own.values()), at_one)}The second comparison is the safer one: single seeds at the lowest rate lie anywhere between almost no optimal actions and almost only optimal ones, so that a rate chosen by two seeds may be
chosen by luck. No correction is made for looking at several pairs: at 95 %, one in twenty is expected to be wrong.

Raw data: `family.csv`, `search.csv`.
"""


SEARCH = Study(
    "nchain-family-search",
    "learning rates of the whole family on N-Chain, on seeds used nowhere else",
    search_cells,
    lambda results, options: "",
    seeds=SEARCH_SEEDS,
    quick_seeds=1,
    first_seed=FIRST_SEARCH_SEED,
    load=load_count,
)
STUDY = Study(
    "nchain-family",
    "every preset on N-Chain, each with its own learning rate: does a randomised criterion help beyond QR-DQN?",
    cells,
    analyse,
    seeds=10,
    quick_seeds=2,
    steps=10_000,
    quick_steps=1_000,
    search=SEARCH,
    load=load_result,
)
