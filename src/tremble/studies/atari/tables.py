"""What the studies that train on Atari share: their choices, raw data, tables and experimental conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tremble.report import tables
from tremble.report.curve_figures import draw_curves
from tremble.report.figures import name_of
from tremble.report.scores import Returns, ScoreTable
from tremble.report.statistics import SUPPORT, Interval, difference_interval, mean_interval, verdict
from tremble.settings import SettingsError
from tremble.studies.atari.cost import cost_estimate
from tremble.studies.atari.plan import Plan, cells_of, plan_of
from tremble.studies.atari.results import load_run, of_kind, published_score, run_scores, tidy
from tremble.studies.kit import Options, Results, Study, seed_count

PUBLISHED_FRAMES = 50_000_000
"""Length of the published runs of most tables."""
KINDS: tuple[Returns, ...] = ("evaluation", "training")


@dataclass(frozen=True)
class AtariRuns:
    """The finished runs of a study, for its report."""

    plan: Plan
    results: Results
    curves: pd.DataFrame
    """Columns of `report.curves`."""
    scores: pd.DataFrame
    """Columns of `results.run_scores`."""
    options: Options

    def scores_of(self, game: str, agent: str, returns: Returns = "evaluation") -> pd.DataFrame:
        """The rows of an agent on a game, one for each seed."""
        scores = self.scores
        return scores[(scores["game"] == game) & (scores["agent"] == agent) & (scores["returns"] == returns)]


def atari_study(
    name: str,
    about: str,
    report: Callable[[AtariRuns], str],
    agents: Sequence[str],
    *,
    games: Sequence[str],
    games_fixed: bool = False,
    protocol: str = "paper",
    frames: int = 10_000_000,
    **further: Any,
) -> Study:
    """A study that trains on Atari, with the default values of its choices; ``further`` are choices of its own.

    Raw data and curves are written before ``report`` is called.
    """
    choices: dict[str, Any] = {
        "protocol": protocol,
        "agents": tuple(agents),
        "frames": frames,
        "episodes": 0,  # of an evaluation; 0: the protocol's steps
        "memory_size": 0,  # 0: the protocol's
        "speed": "unknown",  # frames per second of one run, or "measure"
    }

    def planned(options: Options) -> Plan:
        return plan_of(study, options, games if games_fixed else ())

    def analyse(results: Results, options: Options) -> str:
        plan = planned(options)
        curves, scores = write_raw(results, plan, options.out)
        draw(curves, options.out)
        return report(AtariRuns(plan, results, curves, scores, options))

    study = Study(
        name,
        about,
        lambda options: cells_of(planned(options)),
        analyse,
        seeds=3,
        quick_seeds=1,
        steps=frames // 4,
        quick_steps=2_000,
        load=load_run,
        choices=({} if games_fixed else {"games": tuple(games)}) | choices | further,
        cost_estimate=cost_estimate,
        partial=True,
    )
    return study


def digits_of(interval: Interval) -> int:
    """Decimals shown."""
    return 2 if abs(interval.estimate) < 100 else 0


def text(values: Any) -> str:
    """Mean over seeds with its interval."""
    interval = mean_interval(list(values))
    return interval.text(digits_of(interval))


def write_raw(results: Results, plan: Plan, out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Write curves and scores of every run as CSV; returns both."""
    out.mkdir(parents=True, exist_ok=True)
    curves = tidy(results)
    if set(curves["protocol"]) - {plan.protocol.name}:
        raise SettingsError(
            f"runs under {', '.join(sorted(set(curves['protocol'])))} cannot go into one table: scores under different protocols "
            "cannot be compared"
        )
    scores = run_scores(curves)
    curves.round({"value": 4}).to_csv(out / "curves.csv", index=False, lineterminator="\n")
    scores.round({"best": 4, "last": 4, "area": 4}).to_csv(out / "scores.csv", index=False, lineterminator="\n")
    tables.write_csv(
        out / "final.csv",
        ["game", "agent", "seed", "frames", "episode", "return"],
        [
            [run.game, run.agent, run.seed, run.steps * plan.protocol.frame_skip_max, k, f"{value:g}"]
            for runs in results.values()
            for run in runs
            for k, value in enumerate(run.final)
        ],
    )
    return curves, scores


def draw(curves: pd.DataFrame, out: Path) -> None:
    """Evaluation and training, a figure each."""
    for kind, name in zip(KINDS, ("curves", "training"), strict=True):
        if not (some := of_kind(curves, kind)).empty:
            draw_curves(some, out / name)


def millions(frames: float) -> str:
    """``12.5M``, or ``8,000`` for short runs."""
    return f"{frames / 1e6:g}M" if frames >= 100_000 else f"{frames:,.0f}"


def game_table(runs: AtariRuns, returns: Returns) -> str:
    """Best, last and mean height of every agent on every game, with published scores of the same kind of return."""
    protocol = runs.plan.protocol
    fresh, comparable = returns == "evaluation", protocol.published_returns == returns
    header = ["game", "agent", "seeds", "best [95 %]", "last", "mean height"]
    header += ["fresh games after training"] * fresh + ["published best"] * comparable
    rows = []
    for label, game, agent in runs.plan.labels():
        here = runs.scores_of(game, agent, returns)
        if here.empty:
            rows.append([game, name_of(agent), 0, *["–"] * (len(header) - 3)])
            continue
        row = [game, name_of(agent), len(here), text(here["best"]), text(here["last"]), text(here["area"])]
        if fresh:
            row.append(text(run.final.mean() for run in runs.results[label]))
        if comparable:
            said = published_score(protocol.name, agent, game)
            row.append("–" if said is None else f"{said[0]:,g} at {millions(said[1])}")
        rows.append(row)
    return tables.markdown(header, rows, 2)


def even(scores: pd.DataFrame) -> pd.DataFrame:
    """The games that all agents have, cut to the smallest number of seeds."""
    agents = scores["agent"].nunique()
    complete = scores.groupby("game")["agent"].nunique()
    kept = scores[scores["game"].isin(complete[complete == agents].index)]
    if kept.empty:
        return kept
    fewest = int(kept.groupby(["agent", "game"]).size().min())
    return kept.sort_values("seed", kind="stable").groupby(["agent", "game"], sort=False).head(fewest)


def summary_table(runs: AtariRuns, returns: Returns, measure: str) -> str:
    """Human-normalised summaries of one measure (best, last, area) with intervals; a sentence if no game has runs of all agents."""
    kept = even(runs.scores[runs.scores["returns"] == returns])
    if kept.empty:
        return "No game has runs of all agents yet, so there is no summary.\n"
    table = ScoreTable(runs.plan.protocol.name, returns, kept.rename(columns={measure: "score"}))
    found = table.aggregate()
    names = {"iqm": "IQM", "optimality_gap": "gap to human (less is better)", "median": "median", "mean": "mean"}
    agents = [agent for agent in runs.plan.agents if agent in table.agents]
    rows = [[name_of(agent), *[found[agent, key].text(3) for key in names]] for agent in agents]
    games, seeds = kept["game"].nunique(), int(kept.groupby(["agent", "game"]).size().min())
    caption = f"\n{games} game{'s' * (games > 1)}, {seeds} seed{'s' * (seeds > 1)} each; intervals by stratified bootstrap over seeds.\n"
    return tables.markdown(["agent", *names.values()], rows) + caption


def lead(first: pd.DataFrame, second: pd.DataFrame, measure: str) -> Interval | None:
    """Mean over seeds of the first runs' measure minus the second's; None without a common seed."""
    ours, theirs = (runs.set_index("seed")[measure].to_dict() for runs in (first, second))
    return difference_interval(ours, theirs) if set(ours) & set(theirs) else None


def shown(interval: Interval | None, *, quick: bool) -> str:
    """A difference with its verdict."""
    return (
        "–" if interval is None else f"{interval.text(digits_of(interval))}: {SUPPORT[verdict(interval, quick=quick)]}"
    )


def conditions(runs: AtariRuns, published_frames: int = PUBLISHED_FRAMES) -> str:
    """The experimental conditions, as markdown."""
    plan, rules = runs.plan, runs.plan.protocol
    seeds = seed_count(runs.results)
    lines = [
        f"Protocol `{rules.name}`: {rules.about}. **Our runs are {millions(plan.frames)} frames ({plan.steps:,} steps of the agent) long**"
        + _length(plan.frames, published_frames),
        _evaluations(plan),
        f"{seeds} seed{'s' * (seeds not in ('0', '1', '0–1'))} a cell from seed 0.",
    ]
    if plan.frames < rules.run_frames and not plan.quick:
        lines.append(
            f"Exploration schedules are those of runs of {millions(rules.run_frames)} frames; they are not shortened with the run."
        )
    if plan.memory_size:
        lines.append(
            f"**Replay holds {plan.memory_size:,} transitions, not the protocol's {rules.replay_capacity:,}.**"
        )
    if plan.quick:
        lines.append("Quick version: one game, 16 quantiles, a small memory, games truncated after 500 steps.")
    if absent := [label for label, found in runs.results.items() if not found]:
        lines.append(f"**{len(absent)} of {len(runs.results)} cells have no run yet**; repeat the command to continue.")
    return "\n\n".join(lines)


def _evaluations(plan: Plan) -> str:
    rules = plan.protocol
    length = f"lasts {rules.evaluate_steps:,} steps, as the protocol's,"
    noisier = ""
    if plan.episodes:
        length = f"plays {plan.episodes} whole games"
        noisier = f"; the protocol's lasts {rules.evaluate_steps:,} steps instead, so the best of ours is a maximum of noisier numbers"
    return (
        f"An evaluation every {plan.evaluate_every:,} steps {length} with ε = {rules.evaluate_epsilon:g} and counts game scores{noisier}. All evaluations of a seed "
        "start their games with the same seeds; *fresh games* have others. Training returns are scores of whole games, exploration included."
    )


def _length(frames: int, published: int) -> str:
    if frames == published:
        return f", as the published ones ({millions(published)})."
    return (
        f"; published numbers are at {millions(published)}, so ours are {'earlier' if frames < published else 'later'} in training "
        "and cannot be compared directly."
    )
