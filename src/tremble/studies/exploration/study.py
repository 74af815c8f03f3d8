"""Deep exploration: does a perturbation drawn at every step only dither, and does keeping it for an episode help?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble.report import figures, tables
from tremble.report.statistics import difference_interval
from tremble.studies.kit import Options, Results, Study
from tremble.studies.parts import by_seed, values, write_runs
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun

SIZES = (4, 6, 8, 10, 12, 14)
SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "target_update_interval": 100,
    "start_steps": 200,
    "adam_epsilon": 1e-8,
}
"""The same for all agents."""
QUANTILES = {"n_quantiles": 32}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "QR-DQN, ε-greedy": ("qrdqn", QUANTILES | {"epsilon_decay_steps": 5000.0}),
    "DLTV": ("dltv", QUANTILES),
    "p-DLTV, every step": ("p_dltv", QUANTILES),
    "p-DLTV, held": ("p_dltv", QUANTILES | {"resample_noise_every": "episode"}),
    "PQR, every step": ("pqr", QUANTILES | {"delta_0": 5000.0}),
    "PQR, held": ("pqr", QUANTILES | {"delta_0": 5000.0, "resample_noise_every": "episode"}),
    "Bootstrapped DQN": ("bootstrapped_dqn", {}),
}
"""The last one is designed for deep exploration: it follows one of ten heads for an episode."""
COLOURS = ("#6b7280", "#d1495b", "#e09f3e", "#e09f3e", "#2a6f97", "#2a6f97", "#4a7c59")
STYLES = ("-", "-", "-", "--", "-", "--", "-")
HELD = ("p-DLTV", "PQR")


@dataclass(frozen=True)
class DeepSeaResult:
    """Episodes with the reward in one run."""

    seed: int
    episodes: int
    found: int
    """Number of the first episode that reached the reward; `episodes` + 1 if none did."""
    late_share: float
    """Share of the last tenth of the episodes that reached it."""

    @property
    def solved(self) -> bool:
        """Whether most of them did. A run does nearly always or never, so solved seeds are counted."""
        return self.late_share > 0.5


def load_result(run: FinishedRun) -> DeepSeaResult:
    """Read a finished run."""
    log = run.log
    ended = np.flatnonzero(log["done"])
    reached = log["reward"][ended] > 0.5
    found = int(np.argmax(reached)) + 1 if reached.any() else len(ended) + 1
    return DeepSeaResult(run.seed, len(ended), found, float(reached[-max(1, len(ended) // 10) :].mean()))


def cells(options: Options) -> list[Cell]:
    """Every agent on every size."""
    return [
        Cell(f"{name} | {size}", agent, "deepsea", SETTINGS | changes, {"size": size}, "nchain")
        for size in sizes_of(options)
        for name, (agent, changes) in AGENTS.items()
    ]


def sizes_of(options: Options) -> tuple[int, ...]:
    """A few in the quick version."""
    return SIZES[:2] if options.quick else SIZES


def draw(results: Results, options: Options) -> None:
    """Episodes until the reward is found, and how often it is found in the end."""
    figure, axes = figures.new(1, 2, 11, 4.6)
    sizes = np.asarray(sizes_of(options))
    for k, (name, colour, style) in enumerate(zip(AGENTS, COLOURS, STYLES, strict=True)):
        runs = [results[f"{name} | {size}"] for size in sizes]
        median = [np.median(values(group, "found")) for group in runs]
        found = [m if m <= group[0].episodes else np.nan for m, group in zip(median, runs, strict=True)]
        shifted = sizes + 0.12 * (k - len(AGENTS) // 2)  # many agents have the same value
        look: dict[str, Any] = {"color": colour, "linestyle": style, "marker": "o", "markersize": 4}
        axes[0].plot(shifted, found, label=name, **look)
        axes[1].plot(shifted, [np.mean(values(group, "late_share")) for group in runs], **look)
    thin: dict[str, Any] = {"color": "#111111", "linewidth": 0.8}
    axes[0].plot(sizes, 2.0**sizes, linestyle=":", label="2^N: by chance", **thin)
    axes[0].plot(sizes, options.steps / sizes, linestyle="--", label="episodes in the run", **thin)
    axes[0].set(yscale="log", xlabel="size N", ylabel="episodes until the reward is first reached (median)")
    axes[1].set(xlabel="size N", ylabel="share of the last tenth of episodes that reach it", ylim=(-0.03, 1.03))
    figure.legend(loc="outside lower center", ncols=5, fontsize=9)
    figures.save(figure, options.out / "exploration")


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    draw(results, options)
    columns = {"episodes": "episodes", "first_reached": "found", "late_share": "late_share:.4f"}
    write_runs(options.out / "exploration.csv", results, columns)
    sizes = sizes_of(options)

    def solved(name: str, size: int) -> str:
        runs = values(results[f"{name} | {size}"], "solved")
        return f"{sum(runs)} of {len(runs)}"

    rows = [[name, *(solved(name, size) for size in sizes)] for name in AGENTS]
    held = [held_or_not(results, name, sizes) for name in HELD]
    return f"""# Deep exploration

Deep Sea of size N pays only after N right moves in a row, each with a small cost; acting at random finds it once in 2^N episodes. {options.steps:,} steps, so
{options.steps // sizes[-1]:,} episodes at size {sizes[-1]}; one learning rate and one network for all; {options.seeds} seeds from 0. Bootstrapped DQN, which follows one of ten heads
for an episode, shows what an agent made for deep exploration does with the same steps.

![exploration](exploration.png)

*Left: no point where most seeds never reach it. Points are shifted horizontally, so that agents do not overlap.*

Seeds that solve it, by size; solved means that most of the last tenth of the episodes reach the reward:

{tables.markdown(["agent", *map(str, sizes)], rows)}
## Does holding the perturbation for an episode help?

Seeds that are solved only if it is held, and only if it is not, by size; and sizes solved by a seed, held minus not, seed by seed with a 95 % interval:

{tables.markdown(["agent", *map(str, sizes), "sizes more"], held)}
Raw data: `exploration.csv`.
"""


def held_or_not(results: Results, name: str, sizes: tuple[int, ...]) -> list[str]:
    """One row: seeds solved with a perturbation per episode, against one per step."""
    held, drawn = (
        [by_seed(results[f"{name}, {how} | {n}"], "solved") for n in sizes] for how in ("held", "every step")
    )
    cells = []
    for one, other in zip(held, drawn, strict=True):
        both = one.keys() & other.keys()
        gained, lost = sum(one[s] > other[s] for s in both), sum(one[s] < other[s] for s in both)
        cells.append("=" if gained == lost == 0 else f"+{gained} −{lost}")
    complete = set.intersection(*map(set, (*held, *drawn)))
    first, second = ({s: float(sum(found[s] for found in x)) for s in complete} for x in (held, drawn))
    return [name, *cells, difference_interval(first, second).text(1)]


STUDY = Study(
    "exploration",
    "Deep Sea: is a perturbation per step only dithering, and does holding it for an episode help?",
    cells,
    analyse,
    seeds=5,
    steps=20_000,
    quick_steps=2_000,
    load=load_result,
)
