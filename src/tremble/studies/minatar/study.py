"""MinAtar: learning curves and final scores of the paper's four agents and three others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tremble.presets import PRESETS
from tremble.report import figures, tables
from tremble.report.statistics import NOT_NEGATIVE, SUPPORT, Interval, difference_interval, mean_interval, verdict
from tremble.settings import SettingsError
from tremble.studies.kit import Cell, Options, Results, Study, known_names, seed_count
from tremble.training import checkpoint
from tremble.training.spec import RunSpec
from tremble.worlds.minatar import GAMES

MAIN = ("qrdqn", "dltv", "p_dltv", "pqr")
AGENTS = (*MAIN, "dqn", "iqn", "rainbow")
DEFAULT_GAMES = ("breakout", "freeway", "space_invaders")
RIVALS = ("qrdqn", "dltv", "p_dltv")
"""The paper claims, on Atari, that PQR is better than each of these."""
WINDOWS = 40
"""Number of points of a curve."""
FINAL, CURVES = "final.csv", "curves.csv"


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
    run: str = ""
    """Name of its directory in the store."""

    @property
    def final(self) -> float:
        """Mean of `returns`."""
        return float(self.returns.mean())

    @property
    def late(self) -> float:
        """Mean return over the last tenth of training; 0 where not a single episode ended."""
        curve = self.curve[-WINDOWS // 10 :]
        return float(np.nanmean(curve)) if np.isfinite(curve).any() else 0.0


def load_result(path: Path, seed: int, spec: RunSpec) -> MinAtarResult:
    """Read a stored run."""
    contents = checkpoint.read(path)
    episodes = contents.meta["episodes"]
    ends = np.linspace(0, spec.steps, WINDOWS + 1)[1:]
    window = np.searchsorted(ends, [e["step"] for e in episodes])
    total = np.bincount(window, [e["return"] for e in episodes], WINDOWS)[:WINDOWS]
    count = np.bincount(window, minlength=WINDOWS)[:WINDOWS]
    curve = np.divide(total, count, out=np.full(WINDOWS, np.nan), where=count > 0)
    return MinAtarResult(seed, ends, curve, contents.group("final")["returns"], path.parent.name)


def recall(directory: Path) -> dict[tuple[str, int], MinAtarResult]:
    """Read what `analyse` wrote."""
    curves: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in tables.read_csv(directory / CURVES):
        point = (float(row["step"]), float(row["mean_return"] or "nan"))
        curves.setdefault((f"{row['game']} | {row['agent']}", int(row["seed"])), []).append(point)
    careers = {}
    for row in tables.read_csv(directory / FINAL):
        key = (f"{row['game']} | {row['agent']}", int(row["seed"]))
        ends, curve = np.array(curves[key]).T
        careers[key] = MinAtarResult(key[1], ends, curve, np.array(row["returns"].split(), float), row["run"])
    return careers


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
    record = {"record_every": max(1000, options.steps // 100)}
    return [
        Cell(f"{game} | {agent}", agent, settings | exploration(agent, options), {}, f"minatar/{game}", None, record)
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
    runs = [(*label.split(" | "), run) for label, found in results.items() for run in found]
    tables.write_csv(
        options.out / FINAL,
        ["game", "agent", "seed", "run", "mean_return", "std_return", "returns"],
        [
            [
                game,
                agent,
                c.seed,
                c.run,
                f"{c.final:.3f}",
                f"{c.returns.std():.3f}",
                " ".join(f"{x:g}" for x in c.returns),
            ]
            for game, agent, c in runs
        ],
    )
    tables.write_csv(
        options.out / CURVES,
        ["game", "agent", "seed", "step", "mean_return"],
        [
            [game, agent, c.seed, int(step), "" if np.isnan(mean) else f"{mean:.3f}"]
            for game, agent, c in runs
            for step, mean in zip(c.ends, c.curve, strict=True)
        ],
    )
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

{"Rainbow has prioritised replay of three steps, so it runs in the Gymnasium loop, which is slower, on the same environment. " if "rainbow" in agents_of(options) else ""}Raw data: `{FINAL}`, `{CURVES}`; `tremble study minatar --reuse-results` of this directory goes on from them.
"""


def score_table(results: Results, options: Options, which: str) -> str:
    """Mean of a score (`final` or `late`) with its interval, for every agent on every game."""
    games = games_of(options)
    rows = []
    for agent in agents_of(options):
        scores = [[getattr(run, which) for run in results[f"{game} | {agent}"]] for game in games]
        rows.append([figures.name_of(agent), *[mean_interval(x, between=NOT_NEGATIVE).text(2) for x in scores]])
    return tables.markdown(["agent", *games], rows)


def leads(results: Results, options: Options) -> dict[str, list[Interval]]:
    """PQR's final score minus a rival's, seed by seed, on each game; for each chosen rival."""
    agents = agents_of(options)

    def lead(game: str, rival: str) -> Interval:
        ours, theirs = ({c.seed: c.final for c in results[f"{game} | {agent}"]} for agent in ("pqr", rival))
        return difference_interval(ours, theirs)

    chosen = [rival for rival in RIVALS if rival in agents and "pqr" in agents]
    return {rival: [lead(game, rival) for game in games_of(options)] for rival in chosen}


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
    figure, axes = figures.new(1, len(games), 4.2 * len(games) + 1, 3.8)
    for axis, game in zip(np.atleast_1d(axes), games, strict=True):
        for number, agent in enumerate(agents):
            careers = results[f"{game} | {agent}"]
            curves = np.stack([c.curve for c in careers])
            ended = np.isfinite(curves).any(0)
            steps, mean = careers[0].ends[ended], np.nanmean(curves[:, ended], 0)
            # Later curves are thinner, so that curves that coincide are all visible.
            width = 3.2 - 1.6 * number / len(agents)
            colour, name = figures.COLOURS.get(agent), figures.name_of(agent)
            (line,) = axis.plot(steps, mean, color=colour, label=name, linewidth=width)
            if len(careers) > 1:
                axis.plot(careers[0].ends, curves.T, color=line.get_color(), alpha=0.3, linewidth=0.8)
        axis.set(title=game.replace("_", " "), xlabel="steps")
        figures.thousands(axis.xaxis)
    np.atleast_1d(axes)[0].set_ylabel("mean return of training episodes")
    np.atleast_1d(axes)[0].legend(fontsize=8)
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
    reuse_results=recall,
    choices={"games": DEFAULT_GAMES, "agents": AGENTS, "update_interval": 1},
)
