"""The paper's comparison with QUOTA and DLTV on 49 games: its table and our runs."""

from __future__ import annotations

import pandas as pd

from tremble.report import tables
from tremble.report.figures import name_of
from tremble.report.scores import count_wins
from tremble.studies.atari.claims import NAMES, QUOTA, raw
from tremble.studies.atari.plan import Plan, atari_study, plan_of
from tremble.studies.atari.tables import conditions, draw, millions, scores_of, summary_table, text, write_raw
from tremble.studies.kit import Options, Results

FRAMES = 40_000_000
AGENTS = ("qrdqn", "quota", "quota_onpolicy", "dltv", "pqr")
PRINTED_COLUMNS = {
    "qrdqn": ("qrdqn_zoo", "qrdqn_zhang"),
    "quota": ("quota",),
    "quota_onpolicy": ("quota",),
    "dltv": ("dltv",),
    "pqr": ("pqr",),
}
"""Columns of the paper's table for each of our agents."""
GAMES_49: tuple[str, ...] = tuple(raw(QUOTA).index)
OUR_NAMES = {"quota": "QUOTA with replay", "quota_onpolicy": "QUOTA as published"}


def called(agent: str) -> str:
    """Names of our agents."""
    return OUR_NAMES.get(agent, name_of(agent))


def best(scores: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Best evaluation of our runs, mean over seeds: a row per game, a column per agent."""
    mine = scores[scores["returns"] == "evaluation"]
    table = mine.pivot_table(index="game", columns="agent", values="best")
    return table[[agent for agent in plan.agents if agent in table]]


def score_table(scores: pd.DataFrame, plan: Plan) -> str:
    """Our scores and the paper's, by game."""
    columns = list(dict.fromkeys(column for agent in plan.agents for column in PRINTED_COLUMNS.get(agent, ())))
    printed = raw(QUOTA)
    rows = []
    for game in dict.fromkeys(name for _, name, _ in plan.labels()):
        row = [game]
        for agent in plan.agents:
            here = scores_of(scores, game, agent)
            row.append(text(here["best"]) if len(here) else "–")
        for column in columns:
            value = printed.loc[game, column] if game in printed.index else float("nan")
            row.append("–" if pd.isna(value) else f"{value:,g}")
        rows.append(row)
    header = ["game", *(f"ours: {called(a)}" for a in plan.agents), *(f"paper: {NAMES[c]}" for c in columns)]
    return tables.markdown(header, rows)


def wins(scores: pd.DataFrame, plan: Plan) -> str:
    """Number of games in which PQR is ahead of each rival, in our runs and in the paper's table on the same games."""
    ours, printed = best(scores, plan), raw(QUOTA)
    rows = []
    for rival in plan.agents:
        if rival == "pqr" or "pqr" not in ours or rival not in ours:
            continue
        both = ours[["pqr", rival]].dropna()
        if both.empty:
            continue
        common = [game for game in both.index if game in printed.index]
        theirs = [
            f"{NAMES[column]}: {count_wins(printed.loc[common, 'pqr'], printed.loc[common, column]).text()}"
            for column in PRINTED_COLUMNS.get(rival, ())
            if common and printed.loc[common, ["pqr", column]].dropna().size
        ]
        found = count_wins(both["pqr"], both[rival])
        rows.append([f"PQR against {called(rival)}", found.text(), f"{found.sign_test:.3f}", "; ".join(theirs) or "–"])
    return (
        tables.markdown(["", "ours", "sign test p", "the paper's table, same games"], rows, 4)
        if rows
        else "No game has both yet.\n"
    )


def analyse(results: Results, options: Options) -> str:
    """Raw data, figures and report."""
    plan = plan_of(STUDY, options)
    curves, scores = write_raw(results, plan, options.out)
    draw(curves, options.out)
    return f"""# The comparison with QUOTA

{conditions(results, plan, FRAMES)}

## What “40M” means

The paper's table is headed 40M frames. Its QUOTA and QR-DQN (Zhang) columns are copied from the QUOTA paper, whose 40M are **steps of the agent**, with four frames each: 160M frames. DLTV and PQR
had 40M frames, a quarter of that, and QR-DQN (zoo) is DQN Zoo's curve cut at 40M frames. Here all agents have the same {plan.frames:,} frames ({millions(plan.steps)} steps);
`--set frames=160000000` gives them what QUOTA had. The columns also come from three protocols: only DLTV's and PQR's are the paper's own, under which ours are trained here, so the others
are given for orientation and cannot be compared.

QUOTA is included twice: *as published*, without replay, on rollouts of 5 steps in 16 games, and with replay, where it differs from QR-DQN only by its options.

## Best scores

{score_table(scores, plan)}
## Games won

{wins(scores, plan)}
## Human-normalised, ours

{summary_table(scores, plan, "evaluation", "best")[0]}
![curves](curves.png)

Raw data: `curves.csv`, `scores.csv` (one row a run), `final.csv` (every fresh game).
"""


STUDY = atari_study(
    "quota",
    "QR-DQN, QUOTA, DLTV and PQR on 49 games at 40M frames, with the paper's table; --set games=…, frames=…",
    analyse,
    AGENTS,
    games=GAMES_49,
    frames=FRAMES,
)
