"""Evaluation curves on the five games in which the paper reports the largest lead of PQR under sticky actions."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tremble.report import tables
from tremble.report.curve_figures import draw_curves
from tremble.report.curves import load_dopamine, load_dqn_zoo
from tremble.report.figures import name_of
from tremble.report.references import game_name
from tremble.settings import SettingsError
from tremble.studies.atari.plan import Plan
from tremble.studies.atari.training import AtariRuns, atari_study, lead

NOWHERE = "none"


def published_curves(directory: Path, plan: Plan) -> pd.DataFrame:
    """Dopamine's files of games (JSON) and DQN Zoo's of agents (CSV) in a directory, the games of the study only."""
    if not directory.is_dir():
        raise SettingsError(f"published={directory} is not a directory with Dopamine's JSON or DQN Zoo's CSV files")
    games = {game_name(game) for game in plan.games}
    of_games = [load_dopamine(path) for path in sorted(directory.rglob("*.json")) if _is_of(path, games)]
    of_agents = [load_dqn_zoo(path) for path in sorted(directory.rglob("*.csv"))]
    found = [curves[curves["game"].isin(games)] for curves in of_games + of_agents]
    found = [curves for curves in found if not curves.empty]
    if not found:
        raise SettingsError(f"{directory} has no published curves of {', '.join(sorted(games))}")
    return pd.concat(found, ignore_index=True)


def _is_of(path: Path, games: set[str]) -> bool:
    """Whether a file of Dopamine is about one of the games."""
    try:
        return game_name(path.stem) in games
    except SettingsError:
        return False


def report(runs: AtariRuns) -> str:
    """Published curves with ours if they are given, and the paper's claim."""
    plan, out = runs.plan, runs.options.out
    directory = str(STUDY.chosen(runs.options.choices)["published"])
    behind = "No published curves were given: `--set published=DIR` with Dopamine's JSON or DQN Zoo's CSV files draws them with ours."
    if directory != NOWHERE:
        published, ours = published_curves(Path(directory), plan), runs.curves()
        published.to_csv(out / "published.csv", index=False, lineterminator="\n")
        early = published[published["frame"] <= max(plan.frames, int(published["frame"].min()))]
        draw_curves(pd.concat([early, ours]), out / "beside_published")
        draw_curves(pd.concat([published, ours]), out / "beside_published_whole")
        behind = """![beside published](beside_published.png)

*Ours (tremble) and published curves up to the same frame, each labelled with its protocol and kind of return; lines of two protocols, or of training and evaluation, are not
the same measurement. `beside_published_whole` has the published curves to their end; their values are in `published.csv`.*"""
    return f"""{behind}

## The paper's claim

Under sticky actions, the paper says, PQR improves dramatically over IQN and Rainbow in these games (best scores up to 50M frames). Differences of ours, seed by seed:
*supported* if the interval lies above 0, *contradicted* if below, *inconclusive* otherwise. The paper's rivals are Dopamine's curves of training under another protocol;
ours share PQR's.

{claims(runs)}"""


def claims(runs: AtariRuns) -> str:
    """PQR's lead over each other agent, by best and by mean height."""
    if "pqr" not in runs.plan.agents:
        return "PQR is not among the agents chosen.\n"
    games = [game_name(game) for game in runs.plan.games]
    rows = [
        [
            f"PQR − {name_of(rival)}",
            title,
            *(lead(runs.of(game, "pqr"), runs.of(game, rival), measure, quick=runs.plan.quick) for game in games),
        ]
        for rival in runs.plan.agents
        if rival != "pqr"
        for measure, title in (("best", "best"), ("height", "mean height"))
    ]
    return tables.markdown(["difference", "of", *games], rows, 2)


STUDY = atari_study(
    "atari-curves",
    "curves on the five games of the paper's claim about sticky actions; --set agents=…, published=DIR",
    report,
    ("iqn", "rainbow_dopamine", "pqr"),
    title="Curves on five games",
    games=("assault", "battle_zone", "beam_rider", "berzerk", "bowling"),
    protocol="paper_sticky",
    published=NOWHERE,
)
