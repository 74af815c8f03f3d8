"""Tables, raw data and conditions that the studies on Atari have in common."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from tremble.report import figures, tables
from tremble.report.curve_figures import draw_curves
from tremble.report.scores import Returns, ScoreTable
from tremble.report.statistics import SUPPORT, Interval, difference_interval, mean_interval, verdict
from tremble.settings import SettingsError
from tremble.studies.atari.plan import Plan
from tremble.studies.atari.results import of_kind, published_score, run_scores, tidy
from tremble.studies.kit import Results

PUBLISHED_FRAMES = 50_000_000
"""How long the published runs of most tables are."""
KINDS: tuple[Returns, ...] = ("evaluation", "training")


def name_of(agent: str) -> str:
    """For people."""
    return figures.NAMES.get(agent, agent)


def digits_of(interval: Interval) -> int:
    """Decimals that say something."""
    return 2 if abs(interval.estimate) < 100 else 0


def text(values: Any) -> str:
    """Mean over seeds with its interval."""
    interval = mean_interval(list(values))
    return interval.text(digits_of(interval))


def write_raw(results: Results, plan: Plan, out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves and scores of every run as CSV; returns both."""
    out.mkdir(parents=True, exist_ok=True)
    curves = tidy(results)
    if set(curves["protocol"]) - {plan.protocol.name}:
        raise SettingsError(
            f"runs under {', '.join(sorted(set(curves['protocol'])))} do not go into one table: scores under two protocols do "
            "not compare"
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
    for kind, name in (("evaluation", "curves"), ("training", "training")):
        if not (some := of_kind(curves, kind)).empty:  # type: ignore[arg-type]
            draw_curves(some, out / name)


def millions(frames: float) -> str:
    """12.5M, or 8,000 for quick looks."""
    return f"{frames / 1e6:g}M" if frames >= 100_000 else f"{frames:,.0f}"


def game_table(scores: pd.DataFrame, results: Results, plan: Plan, returns: Returns) -> str:
    """Best, last and mean height of every agent on every game, beside what is published of the same kind."""
    beside = plan.protocol.published_returns == returns
    header = ["game", "agent", "seeds", "best [95 %]", "last", "mean height"]
    header += (["fresh games after training"] if returns == "evaluation" else []) + (
        ["published best"] if beside else []
    )
    rows = []
    for label, game, agent in plan.labels():
        here = scores[(scores["game"] == game) & (scores["agent"] == agent) & (scores["returns"] == returns)]
        if here.empty:
            rows.append([game, name_of(agent), 0, *["–"] * (len(header) - 3)])
            continue
        row = [game, name_of(agent), len(here), text(here["best"]), text(here["last"]), text(here["area"])]
        if returns == "evaluation":
            row.append(text(run.final.mean() for run in results[label]))
        if beside:
            said = published_score(plan.protocol.name, agent, game)
            row.append("–" if said is None else f"{said[0]:,g} at {millions(said[1])}")
        rows.append(row)
    return tables.markdown(header, rows, 2)


def even(scores: pd.DataFrame) -> pd.DataFrame:
    """Games that all agents have, with as many seeds of each as the game with the fewest."""
    agents = scores["agent"].nunique()
    complete = scores.groupby("game")["agent"].nunique()
    kept = scores[scores["game"].isin(complete[complete == agents].index)]
    if kept.empty:
        return kept
    fewest = int(kept.groupby(["agent", "game"]).size().min())
    return kept.sort_values("seed", kind="stable").groupby(["agent", "game"], sort=False).head(fewest)


def summary_table(scores: pd.DataFrame, plan: Plan, returns: Returns, measure: str) -> tuple[str, ScoreTable | None]:
    """Human-normalised summaries of one measure (best, last, area) with intervals; a sentence if there is nothing to sum up."""
    kept = even(scores[scores["returns"] == returns])
    if kept.empty:
        return "No game has runs of all agents yet, so there is nothing to sum up.\n", None
    order = {agent: i for i, agent in enumerate(plan.agents)}
    kept = kept.sort_values("agent", key=lambda column: column.map(order), kind="stable")
    table = ScoreTable(plan.protocol.name, returns, kept.rename(columns={measure: "score"}))
    found = table.aggregate()
    names = {"iqm": "IQM", "optimality_gap": "gap to human (less is better)", "median": "median", "mean": "mean"}
    rows = [[name_of(agent), *[found[agent, key].text(3) for key in names]] for agent in table.agents]
    games, seeds = kept["game"].nunique(), int(kept.groupby(["agent", "game"]).size().min())
    caption = f"\n{games} game{'s' * (games > 1)}, {seeds} seed{'s' * (seeds > 1)} each; intervals by stratified bootstrap over seeds.\n"
    return tables.markdown(["agent", *names.values()], rows) + caption, table


def lead(scores: pd.DataFrame, game: str, first: str, second: str, measure: str) -> Interval | None:
    """Mean over seeds of the first agent's measure minus the second's, in evaluations; None where a seed in common lacks."""
    here = scores[(scores["game"] == game) & (scores["returns"] == "evaluation")]
    ours, theirs = (dict(here[here["agent"] == a][["seed", measure]].itertuples(index=False)) for a in (first, second))
    return difference_interval(ours, theirs) if set(ours) & set(theirs) else None


def shown(interval: Interval | None) -> str:
    """A difference with its verdict."""
    return "–" if interval is None else f"{interval.text(digits_of(interval))}: {SUPPORT[verdict(interval)]}"


def conditions(results: Results, plan: Plan, published_frames: int = PUBLISHED_FRAMES) -> str:
    """Under what conditions the numbers were made, in plain words."""
    rules = plan.protocol
    seeds = sorted({len(runs) for runs in results.values()})
    lines = [
        f"Protocol `{rules.name}`: {rules.about}. **Our runs are {millions(plan.frames)} frames ({plan.steps:,} steps of the agent) long**"
        + _beside(plan.frames, published_frames),
        _evaluations(plan),
        f"{'–'.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seed{'s' * (seeds[-1] > 1)} a cell from seed 0.",
    ]
    if plan.frames < rules.run_frames and not plan.quick:
        lines.append(
            f"Exploration fades as in runs of {millions(rules.run_frames)} frames: nothing is shortened with the run."
        )
    if plan.memory_size:
        lines.append(
            f"**Replay holds {plan.memory_size:,} transitions, not the protocol's {rules.replay_capacity:,}.**"
        )
    if plan.quick:
        lines.append(
            "**A quick look: one game, 16 quantiles, a small memory, games cut after 500 steps. It shows that everything works and is no result.**"
        )
    if absent := [label for label, runs in results.items() if not runs]:
        lines.append(f"**{len(absent)} of {len(results)} cells have no run yet**; repeat the command to go on.")
    return "\n\n".join(lines)


def _evaluations(plan: Plan) -> str:
    rules = plan.protocol
    length = f"lasts {rules.evaluate_steps:,} steps, as the protocol's,"
    noisier = ""
    if plan.episodes:
        length = f"plays {plan.episodes} whole games"
        noisier = f"; the protocol's lasts {rules.evaluate_steps:,} steps instead, so that a best of ours is a maximum of noisier numbers"
    return (
        f"An evaluation every {plan.evaluate_every:,} steps {length} with ε = {rules.evaluate_epsilon:g} and counts points{noisier}. All evaluations of a seed "
        "begin their games alike; *fresh games* are others. Training returns are points of whole games, exploration included."
    )


def _beside(frames: int, published: int) -> str:
    if frames == published:
        return f", as the published ones ({millions(published)})."
    return (
        f"; published numbers are at {millions(published)}, so ours are {'earlier' if frames < published else 'later'} in training and not their equals: "
        "the two stand side by side, no more."
    )


def bullet(lines: Iterable[str]) -> str:
    """A markdown list."""
    return "\n".join(f"- {line}" for line in lines)
