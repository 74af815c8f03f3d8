"""MinAtar: learning curves and final scores of the paper's four agents and three others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble.presets import PRESETS
from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, SUPPORT, Interval, verdict
from tremble.settings import SettingsError
from tremble.studies.kit import Options, Results, Study, known_names
from tremble.studies.parts import difference, draw_seeds, over_seeds, seed_count, values, write_curves, write_runs
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import FinishedRun
from tremble.worlds.minatar import GAMES

MAIN = ("qrdqn", "dltv", "p_dltv", "pqr")
AGENTS = (*MAIN, "dqn", "iqn", "rainbow")
DEFAULT_GAMES = ("breakout", "freeway", "space_invaders")
RIVALS = ("qrdqn", "dltv", "p_dltv")
"""The paper claims, on Atari, that PQR is better than each of these."""
HEAD = ("game", "agent")
WINDOWS = 40
"""Number of points of a curve."""


@dataclass(frozen=True)
class MinAtarResult:
    """Learning curve and final returns of one run."""

    seed: int
    ends: np.ndarray
    """Last step of each window of the curve."""
    curve: np.ndarray
    """Mean return of the training episodes that ended in each window; NaN where none did."""
    returns: np.ndarray
    """Returns of 100 episodes after training."""

    @property
    def final(self) -> float:
        """Mean of `returns`."""
        return float(self.returns.mean())

    @property
    def spread(self) -> float:
        """Their standard deviation."""
        return float(self.returns.std())

    @property
    def listed(self) -> str:
        """All of them."""
        return " ".join(f"{x:g}" for x in self.returns)

    @property
    def late(self) -> float:
        """Mean return over the last tenth of training; 0 where not a single episode ended."""
        curve = self.curve[-WINDOWS // 10 :]
        return float(np.nanmean(curve)) if np.isfinite(curve).any() else 0.0


def load_result(run: FinishedRun) -> MinAtarResult:
    """Read a finished run."""
    ends = np.linspace(0, run.spec.steps, WINDOWS + 1)[1:]
    window = np.searchsorted(ends, [e["step"] for e in run.episodes])
    total = np.bincount(window, [e["return"] for e in run.episodes], WINDOWS)[:WINDOWS]
    count = np.bincount(window, minlength=WINDOWS)[:WINDOWS]
    curve = np.divide(total, count, out=np.full(WINDOWS, np.nan), where=count > 0)
    return MinAtarResult(run.seed, ends, curve, run.final.returns)


def games_of(options: Options) -> list[str]:
    """The chosen games; only the first in the quick version."""
    games = known_names(STUDY.chosen(options.choices)["games"], GAMES, "game")
    return games[:1] if options.quick else games


def agents_of(options: Options) -> list[str]:
    """The chosen agents; only those of the paper in the quick version."""
    agents = known_names(STUDY.chosen(options.choices)["agents"], PRESETS, "agent")
    return [a for a in agents if a in MAIN] or agents if options.quick else agents


def interval_of(options: Options) -> int:
    """Steps between two updates."""
    interval = int(STUDY.chosen(options.choices)["update_interval"])
    if interval < 1:
        raise SettingsError(f"update_interval must be at least 1, got {interval}")
    return interval


def cells(options: Options) -> list[Cell]:
    """Every agent on every game."""
    settings: dict[str, Any] = {"update_interval": interval_of(options)}
    if options.quick:
        settings |= {"start_steps": 1000, "n_quantiles": 16, "memory_size": 10_000}
    run = {"record_every": max(1000, options.steps // 100), "final_episodes": 100}
    return [
        Cell(f"{game} | {agent}", agent, f"minatar/{game}", settings | exploration(agent, options), run_options=run)
        for game in games_of(options)
        for agent in agents_of(options)
    ]


def exploration(agent: str, options: Options) -> dict[str, Any]:
    """Schedules of exploration, scaled with the length of the run."""
    if agent.startswith("pqr"):
        return {"delta_0": 0.5 * options.steps}
    if agent in ("qrdqn", "dqn", "iqn"):
        return {"epsilon_decay_steps": 0.1 * options.steps}
    return {}


def analyse(results: Results, options: Options) -> str:
    """Figure, tables and report."""
    draw(results, options)
    columns = {"mean_return": "final:.3f", "std_return": "spread:.3f", "returns": "listed"}
    write_runs(options.out / "final.csv", results, columns, HEAD)
    write_curves(options.out / "curves.csv", results, "ends", {"mean_return": "curve:.3f"}, HEAD)
    interval = interval_of(options)
    rate = (
        "an update at every step" if interval == 1 else f"**an update every {interval} steps instead of at every one**"
    )
    return f"""# MinAtar

{options.steps:,} steps a run, {seed_count(results)} seeds a cell from seed 0, {rate}; sticky actions (0.1), the ramp of
difficulty and all six actions, as in the MinAtar paper; episodes are cut after 10,000 steps. The column `minatar` of settings, with exploration schedules in proportion to the
length of the run: ε reaches its floor after a tenth, Δ falls to 1 after half.{" Quick version: 16 quantiles and a small memory." if options.quick else ""}

![curves](curves.png)

*Mean return of the training episodes that ended in each fortieth of the run, exploration included; thick the mean over seeds, thin single seeds.*

## After training: 100 episodes, greedy by the mean

{score_table(results, options, "final")}
## The last tenth of training, exploration included

{score_table(results, options, "late")}
## The paper's claim

The paper shows PQR ahead of QR-DQN, DLTV and p-DLTV on Atari; it has no numbers for MinAtar. Differences of the final scores, seed by seed: *supported* if the interval lies
above 0, *contradicted* if below, *inconclusive* otherwise.

{claims(results, options)}

{"Rainbow has prioritised replay of three steps, so it runs in the Gymnasium loop, which is slower, on the same environment. " if "rainbow" in agents_of(options) else ""}Raw data: `final.csv`, `curves.csv`.
"""


def score_table(results: Results, options: Options, which: str) -> str:
    """Mean of a score (`final` or `late`) with its interval, for every agent on every game."""
    games = games_of(options)
    rows = [
        [
            figures.name_of(agent),
            *(over_seeds(results[f"{game} | {agent}"], which, NOT_NEGATIVE).text(2) for game in games),
        ]
        for agent in agents_of(options)
    ]
    return tables.markdown(["agent", *games], rows)


def leads(results: Results, options: Options) -> dict[str, list[Interval]]:
    """PQR's final score minus a rival's, seed by seed, on each game; for each chosen rival."""
    agents, games = agents_of(options), games_of(options)
    return {
        rival: [difference(results[f"{game} | pqr"], results[f"{game} | {rival}"], "final") for game in games]
        for rival in RIVALS
        if rival in agents and "pqr" in agents
    }


def claims(results: Results, options: Options) -> str:
    """The differences as a table, a verdict per game, and the verdicts as a list."""
    rows, lines, games = [], [], games_of(options)
    for rival, found in leads(results, options).items():
        name, words = figures.NAMES[rival], [SUPPORT[verdict(interval, quick=options.quick)] for interval in found]
        rows.append([f"PQR − {name}", *[f"{x.text(2)}: {word}" for x, word in zip(found, words, strict=True)]])
        listed = {word: [game for game, its in zip(games, words, strict=True) if its == word] for word in words}
        parts = "; ".join(f"{word} on {', '.join(on)}" for word, on in listed.items())
        lines.append(f"- *PQR is better than {name}*: {parts}.")
    return tables.markdown(["difference", *games], rows) + "\n" + "\n".join(lines)


def draw(results: Results, options: Options) -> None:
    """One panel per game."""
    games, agents = games_of(options), agents_of(options)
    figure, axes = figures.new(1, len(games), 4.2 * len(games) + 1, 3.8, squeeze=False)
    for axis, game in zip(axes[0], games, strict=True):
        for number, agent in enumerate(agents):
            runs, look = results[f"{game} | {agent}"], figures.COLOURS.get(agent)
            # Later curves are thinner, so that curves that coincide are all visible.
            width = 3.2 - 1.6 * number / len(agents)
            draw_seeds(axis, runs[0].ends, values(runs, "curve"), look, label=figures.name_of(agent), width=width)
        axis.set(title=game.replace("_", " "), xlabel="steps")
    axes[0][0].set_ylabel("mean return of training episodes")
    axes[0][0].legend(fontsize=8)
    figures.save(figure, options.out / "curves")


STUDY = Study(
    "minatar",
    "seven agents on MinAtar; --set games=…, agents=…, update_interval=4",
    cells,
    analyse,
    seeds=3,
    quick_seeds=1,
    steps=1_000_000,
    quick_steps=4_000,
    load=load_result,
    choices={"games": DEFAULT_GAMES, "agents": AGENTS, "update_interval": 1},
)
