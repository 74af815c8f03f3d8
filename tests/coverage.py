"""How often intervals hold what they are about, by simulation: few seeds, and scores that are not normal.

    python -m tests.coverage                                        prints the tables
    python -m tests.coverage --out docs/results/interval-coverage   writes README.md and coverage.csv there

Scores are drawn from laws whose mean, quantiles and interquartile mean are known or computed from a million draws.
An interval of 95 % should hold its target in 95 % of the repetitions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tremble.report import tables
from tremble.report.resampling import aggregate
from tremble.report.seeds import tolerance_factor

SEEDS = (3, 5, 10, 30)
LEVEL = 0.95
ENVIRONMENTS = 10
Law = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal."""
    return rng.normal(size=shape)


def skewed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Logarithm normal with standard deviation 0.8: a few runs score far above the others."""
    return np.exp(0.8 * rng.normal(size=shape))


def bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Two of ten runs fail: 0 instead of 10, both with spread 1."""
    return np.where(rng.uniform(size=shape) < 0.2, 0.0, 10.0) + rng.normal(size=shape)


LAWS: Mapping[str, Law] = {"normal": normal, "skewed": skewed, "bimodal": bimodal}


@dataclass(frozen=True)
class Row:
    """Share of repetitions in which an interval held its target."""

    interval: str
    law: str
    seeds: int
    share: float
    repetitions: int

    @property
    def verdict(self) -> str:
        """Whether the share is 95 % as far as the simulation can tell, or at least not below it."""
        error = math.sqrt(LEVEL * (1 - LEVEL) / self.repetitions)
        return "covers" if self.share >= LEVEL - max(0.01, 3 * error) else "too narrow"


@cache
def truth(law: Law) -> np.ndarray:
    """A million scores."""
    return law(np.random.default_rng(99), (1_000_000,))


def student(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Student's t interval of the mean; scores are [repetitions, seeds]."""
    n = scores.shape[1]
    half = stats.t.ppf(0.5 + LEVEL / 2, n - 1) * scores.std(1, ddof=1) / math.sqrt(n)
    return scores.mean(1) - half, scores.mean(1) + half


def percentile(scores: np.ndarray, rng: np.random.Generator, reps: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the percentile bootstrap interval of the mean."""
    n = scores.shape[1]
    ends = []
    for row in scores:
        means = rng.multinomial(n, np.full(n, 1 / n), size=reps) @ row / n
        ends.append(np.percentile(means, [50 * (1 - LEVEL), 50 * (1 + LEVEL)]))
    low, high = np.array(ends).T
    return low, high


def share(low: Any, high: Any, target: Any) -> float:
    """How often the target is inside."""
    return float(np.mean((low <= target) & (target <= high)))


def one_environment(name: str, n: int, repetitions: int, seed: int = 0) -> list[Row]:
    """Intervals of one agent on one environment: of the mean, of one new run, and what 95 % of runs reach."""
    law, rng = LAWS[name], np.random.default_rng([seed, n])
    every = truth(law)
    scores, new = law(rng, (repetitions, n)), law(rng, (repetitions,))
    few = scores[: max(repetitions // 4, 1)]
    mean, spread = scores.mean(1), scores.std(1, ddof=1)
    half = stats.t.ppf(0.5 + LEVEL / 2, n - 1) * spread * math.sqrt(1 + 1 / n)
    bound = mean - tolerance_factor(n) * spread
    found = {
        "mean, Student's t": (share(*student(scores), every.mean()), repetitions),
        "mean, percentile bootstrap": (share(*percentile(few, rng), every.mean()), len(few)),
        "one new run": (share(mean - half, mean + half, new), repetitions),
        "95 % of runs reach": (share(-np.inf, np.quantile(every, 0.05), bound), repetitions),
    }
    return [Row(interval, name, n, value, made) for interval, (value, made) in found.items()]


def many_environments(name: str, n: int, repetitions: int, seed: int = 0) -> list[Row]:
    """The stratified bootstrap of summaries over ten environments, whose scores differ by 3 from one to the next."""
    law, rng = LAWS[name], np.random.default_rng([seed, n, 1])
    levels = 3.0 * np.arange(ENVIRONMENTS)
    every = truth(law)[: 100_000 * ENVIRONMENTS].reshape(-1, ENVIRONMENTS) + levels
    targets = {"iqm": stats.trim_mean(every, 0.25, axis=None), "mean": every.mean()}
    held = dict.fromkeys(targets, 0)
    for number in range(repetitions):
        scores = law(rng, (n, ENVIRONMENTS)) + levels
        intervals = aggregate(list(scores.T), reps=1000, seed=number)
        for summary, target in targets.items():
            held[summary] += intervals[summary].low <= target <= intervals[summary].high
    about = f"over {ENVIRONMENTS} environments, stratified bootstrap"
    return [Row(f"{summary} {about}", name, n, count / repetitions, repetitions) for summary, count in held.items()]


def simulate(repetitions: int, summaries: int) -> list[Row]:
    """All laws and numbers of seeds."""
    rows = []
    for name in LAWS:
        for n in SEEDS:
            rows += one_environment(name, n, repetitions)
            rows += many_environments(name, n, summaries)
    return rows


def page(rows: list[Row]) -> str:
    """The tables, an interval in each."""
    parts = []
    for interval in dict.fromkeys(row.interval for row in rows):
        here = {(row.law, row.seeds): row for row in rows if row.interval == interval}
        lines = [[law, *(_cell(here[law, n]) for n in SEEDS)] for law in LAWS]
        header = ["scores", *(f"{n} seeds" for n in SEEDS)]
        made = next(iter(here.values())).repetitions
        parts.append(f"## {interval}\n\n{tables.markdown(header, lines)}\n*{made:,} repetitions.*\n")
    return "\n".join(parts)


def _cell(row: Row) -> str:
    return f"{100 * row.share:.1f} %" + ("" if row.verdict == "covers" else " (too narrow)")


HEAD = """# How often intervals hold what they are about

Written by `python -m tests.coverage --out docs/results/interval-coverage`. Each number is the share of simulated
experiments in which an interval of 95 % held its target; *too narrow* marks shares that are below 95 % by more than one
point and by more than three standard errors of the simulation.

Scores are drawn from three laws: *normal*; *skewed*, the exponential of a normal variable with standard deviation 0.8,
so a few runs score far above the others; *bimodal*, where two of ten runs fail and score 0 instead of 10, spread 1.

What reports use follows from this. Of one environment they give Student's t interval, which is right for normal scores
with any number of seeds; the percentile bootstrap is too narrow with few. No interval of the mean is right for skewed
or bimodal scores with few seeds, which is why every run is shown. Over several environments there is the stratified
bootstrap of the literature, and beside it the share that this simulation found.

"""


def main() -> None:
    """Simulate and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20_000, help="for intervals of one environment (20,000)")
    parser.add_argument("--summaries", type=int, default=2_000, help="for summaries over environments (2,000)")
    parser.add_argument("--out", type=Path, help="write README.md and coverage.csv there")
    options = parser.parse_args()
    rows = simulate(options.repetitions, options.summaries)
    print(page(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "README.md").write_text(HEAD + page(rows), encoding="utf-8")
        lines = [[row.interval, row.law, row.seeds, f"{row.share:.4f}", row.repetitions, row.verdict] for row in rows]
        header = ["interval", "scores", "seeds", "share", "repetitions", "verdict"]
        tables.write_csv(options.out / "coverage.csv", header, lines)


if __name__ == "__main__":
    main()
