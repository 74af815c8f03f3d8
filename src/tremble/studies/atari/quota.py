"""The paper's comparison with QUOTA and DLTV on 49 games: its table and our runs."""

from __future__ import annotations

import pandas as pd

from tremble.report import tables
from tremble.report.figures import name_of
from tremble.report.scores import count_wins
from tremble.studies.atari.claims import NAMES, QUOTA, raw
from tremble.studies.atari.training import AtariRuns, atari_study, millions, text
from tremble.studies.parts import over_seeds

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


def score_table(runs: AtariRuns) -> str:
    """Our scores and the paper's, by game."""
    agents, printed = runs.plan.agents, raw(QUOTA)
    columns = list(dict.fromkeys(column for agent in agents for column in PRINTED_COLUMNS.get(agent, ())))
    rows = []
    for game in dict.fromkeys(name for _, name, _ in runs.plan.labels()):
        theirs = printed.reindex([game])[columns].iloc[0]
        row = [text(over_seeds(runs.of(game, agent), "best")) for agent in agents]
        rows.append([game, *row, *("–" if pd.isna(value) else f"{value:,g}" for value in theirs)])
    header = ["game", *(f"ours: {called(a)}" for a in agents), *(f"paper: {NAMES[c]}" for c in columns)]
    return tables.markdown(header, rows)


def wins(runs: AtariRuns) -> str:
    """Number of games in which PQR is ahead of each rival, in our runs and in the paper's table on the same games."""
    best = {label: over_seeds(found, "best").estimate for label, found in runs.results.items() if found}
    ours = pd.Series(best).rename_axis("label").reset_index(name="best")
    ours[["game", "agent"]] = ours["label"].str.split(" | ", regex=False, expand=True)
    ours, printed = ours.pivot(index="game", columns="agent", values="best"), raw(QUOTA)
    rows = []
    for rival in runs.plan.agents:
        if rival == "pqr" or not {"pqr", rival} <= set(ours):
            continue
        both = ours[["pqr", rival]].dropna()
        if both.empty:
            continue
        same = printed[printed.index.isin(both.index)]
        theirs = [
            f"{NAMES[column]}: {count_wins(same['pqr'], same[column]).text()}"
            for column in PRINTED_COLUMNS.get(rival, ())
            if not same[["pqr", column]].dropna().empty
        ]
        found = count_wins(both["pqr"], both[rival])
        rows.append([f"PQR against {called(rival)}", found.text(), f"{found.sign_test:.3f}", "; ".join(theirs) or "–"])
    if not rows:
        return "No game has both yet.\n"
    return tables.markdown(["", "ours", "sign test p", "the paper's table, same games"], rows, 4)


def report(runs: AtariRuns) -> str:
    """Our scores with the paper's table, and what the table compares."""
    plan = runs.plan
    return f"""## What “40M” means

The paper's table is headed 40M frames. Its QUOTA and QR-DQN (Zhang) columns are copied from the QUOTA paper, whose 40M are **steps of the agent**, with four frames each: 160M frames. DLTV and PQR
had 40M frames, a quarter of that, and QR-DQN (zoo) is DQN Zoo's curve cut at 40M frames. Here all agents have the same {plan.frames:,} frames ({millions(plan.steps)} steps);
`--set frames=160000000` gives them what QUOTA had. The columns also come from three protocols: only DLTV's and PQR's are the paper's own, under which ours are trained here, so the others
are given for orientation and cannot be compared.

QUOTA is included twice: *as published*, without replay, on rollouts of 5 steps in 16 games, and with replay, where it differs from QR-DQN only by its options.

## Best scores

{score_table(runs)}
## Games won

{wins(runs)}"""


STUDY = atari_study(
    "quota",
    "QR-DQN, QUOTA, DLTV and PQR on 49 games at 40M frames, with the paper's table; --set games=…, frames=…",
    report,
    AGENTS,
    title="The comparison with QUOTA",
    games=GAMES_49,
    frames=FRAMES,
    published_frames=FRAMES,
)
