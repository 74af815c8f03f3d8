"""The paper's statements about its Atari scores, recomputed from the raw scores it prints."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import pandas as pd

from tremble.report import figures
from tremble.report.references import human_random, load_reference
from tremble.report.scores import AGGREGATES, Wins, count_wins, human_normalised

Verdict = Literal[
    "holds",
    "holds, rounded otherwise",
    "holds once Enduro is repaired",
    "only if ties count",
    "points, not percent",
    "depends on the measure",
    "incomplete",
    "contradicts itself",
    "impossible",
    "fails",
]
"""About the arithmetic of printed numbers; `report.statistics.Verdict` is about measured differences."""
NO_OPS, STICKY, QUOTA = "atari55_noop_50m", "atari55_sticky_50m", "atari49_noop_40m"
TITLES = {
    NO_OPS: "table of raw scores, no-ops",
    STICKY: "table of raw scores, sticky",
    QUOTA: "table of raw scores, 40M",
}
AGENTS = {table: ["dqn", "qrdqn", "iqn", "rainbow", "pqr"] for table in (NO_OPS, STICKY)} | {
    QUOTA: ["qrdqn_zoo", "qrdqn_zhang", "quota", "dltv", "pqr"]
}
NAMES = figures.NAMES | {"quota": "QUOTA", "qrdqn_zoo": "QR-DQN (zoo)", "qrdqn_zhang": "QR-DQN (Zhang)"}
MARKED = {
    (NO_OPS, "pqr_bold"): ["dqn", "qrdqn", "iqn"],
    (NO_OPS, "pqr_asterisk"): ["rainbow"],
    (STICKY, "pqr_bold"): ["dqn", "qrdqn"],
    (STICKY, "pqr_asterisk"): ["iqn", "rainbow"],
    (QUOTA, "pqr_bold"): ["quota", "dltv"],
}
"""Agents that a marked cell of PQR beats, according to the captions."""


@dataclass(frozen=True)
class Claim:
    """One statement: the printed value, the value recomputed from the raw scores, and the verdict."""

    claim: str
    where: str
    printed: str
    recomputed: str
    verdict: Verdict
    because: str = ""


@cache
def raw(table: str, repaired: bool = False) -> pd.DataFrame:
    """Raw scores as printed; ``repaired`` undoes the exchange of DQN and IQN on Enduro."""
    scores = load_reference(table)
    if repaired and table == STICKY:
        # Dopamine's curves give IQN 2268.1, the value printed for DQN; DQN's own, 799.5, is printed as 766.5 for IQN.
        dqn, iqn = scores.loc["Enduro", "dqn"], scores.loc["Enduro", "iqn"]
        scores = scores.copy()
        scores.loc["Enduro", "dqn"], scores.loc["Enduro", "iqn"] = iqn, dqn
    return scores


def percent(table: str, repaired: bool = False) -> pd.DataFrame:
    """Human-normalised scores in percent, by the human and random scores printed in the same table."""
    scores = raw(table, repaired)
    return pd.DataFrame(
        {agent: 100 * human_normalised(scores[agent], scores["random"], scores["human"]) for agent in AGENTS[table]}
    )


def summary(table: str, repaired: bool = False) -> pd.DataFrame:
    """Mean, median, games above the human and above DQN (if the table has it), for each agent."""
    scores, normalised = raw(table, repaired), percent(table, repaired)
    found = pd.DataFrame({"mean_percent": normalised.mean(), "median_percent": normalised.median()})
    columns = scores[AGENTS[table]]
    found["above_human"] = columns.gt(scores["human"], axis=0).sum()
    if "dqn" in columns:
        found["above_dqn"] = columns.gt(scores["dqn"], axis=0).sum()
    return found


def wins(table: str, first: str, second: str, repaired: bool = False) -> Wins:
    """Games in which the first has the higher raw score."""
    scores = raw(table, repaired)
    return count_wins(scores[first], scores[second])


def judge(printed: float, recomputed: float, repaired: float | None = None, digits: int = 0) -> Verdict:
    """Whether a printed number equals the recomputed one, to the printed digits."""
    unit = 10.0**-digits
    if abs(printed - round(recomputed, digits)) < unit / 2:
        return "holds"
    if repaired is not None and abs(printed - round(repaired, digits)) < unit / 2:
        return "holds once Enduro is repaired"
    bounds = (math.floor(recomputed / unit) * unit, math.ceil(recomputed / unit) * unit)
    return "holds, rounded otherwise" if any(abs(printed - bound) < unit / 2 for bound in bounds) else "fails"


def measures(table: str) -> pd.DataFrame:
    """The summaries of `AGGREGATES` in percent, a row for each agent; Enduro is repaired."""
    columns = {agent: column.dropna().to_numpy()[None] / 100 for agent, column in percent(table, repaired=True).items()}
    return pd.DataFrame(
        {
            name: {agent: 100 * summarise(scores) for agent, scores in columns.items()}
            for name, summarise in AGGREGATES.items()
        }
    )


def computed() -> dict[str, Any]:
    """The numbers that `data/claims.toml` refers to."""
    no_ops, sticky = measures(NO_OPS), measures(STICKY)

    def three(found: pd.DataFrame, agent: str) -> str:
        mean, median, middle = found.loc[agent, ["mean", "median", "iqm"]]
        return f"{mean:.0f} / {median:.0f} / {middle:.0f} %"

    def three_of_each(found: pd.DataFrame) -> str:
        return ", ".join(f"{NAMES[agent]} {three(found, agent)}" for agent in ("pqr", "iqn", "rainbow"))

    against = {
        rival + suffix: wins(table, "pqr", rival, repaired=True)
        for table, suffix in ((NO_OPS, ""), (STICKY, "_sticky"))
        for rival in ("iqn", "rainbow")
    }
    named = raw(STICKY, repaired=True).loc[["Assault", "BattleZone", "BeamRider", "Berzerk", "Bowling"]]
    factors = named["pqr"] / named[["iqn", "rainbow"]].max(axis=1)
    moved = sticky["median"] - no_ops["median"]
    points = no_ops.loc["pqr", "mean"] - no_ops.loc["qrdqn", "mean"]
    return {
        **against,
        **{f"{name}_text": found.text() for name, found in against.items()},
        "points": points,
        "relative": 100 * points / no_ops.loc["qrdqn", "mean"],
        "pinball": percent(NO_OPS).loc["VideoPinball", "pqr"] / 55,
        "measures": three_of_each(no_ops),
        "measures_sticky": three_of_each(sticky),
        "measures_rainbow": three(no_ops, "rainbow"),
        "measures_rainbow_sticky": three(sticky, "rainbow"),
        "least": factors.min(),
        "most": factors.max(),
        "moved": ", ".join(f"{NAMES[agent]} {change:+.1f}" for agent, change in moved.items()),
        "venture_gain": 22_700 / 49,
        "venture": raw(QUOTA).loc["Venture"],
        "boxing": raw(QUOTA).loc["Boxing"],
        "enduro": raw(STICKY).loc["Enduro"],
    }


def written_claims(section: str) -> list[Claim]:
    """The statements in a section of `data/claims.toml`, with their numbers."""
    text = (files("tremble.studies.atari") / "data" / "claims.toml").read_text(encoding="utf-8")
    values = computed()
    return [
        Claim(**{field: words.format_map(values) for field, words in entry.items()})
        for entry in tomllib.loads(text)[section]
    ]


def summary_claims() -> list[Claim]:
    """Every cell of the summary table of the main text."""
    labels = ("mean", "median", "games above human", "games above DQN")
    claims = []
    for (agent, protocol), printed in load_reference("atari55_summary").iterrows():
        table, setting = (NO_OPS, "no-ops") if protocol == "noop" else (STICKY, "sticky")
        plain, mended = summary(table).loc[agent], summary(table, repaired=True).loc[agent]
        for (column, said), label in zip(printed[plain.index].items(), labels, strict=True):
            unit, digits = (" %", 2) if column.endswith("percent") else ("", 0)
            shown = f"{plain[column]:.{digits}f}{unit}"
            verdict = judge(float(said), plain[column], mended[column])
            if verdict == "holds once Enduro is repaired":
                shown += f"; repaired {mended[column]:.{digits}f}{unit}"
            where = f"main text, summary table, {setting}"
            claims.append(Claim(f"{NAMES[agent]}: {label}", where, f"{int(said)}{unit}", shown, verdict))
    return claims


def quota_claims() -> list[Claim]:
    """Means and medians of the comparison with QUOTA and DLTV."""
    claims = []
    recomputed, normalised = summary(QUOTA), percent(QUOTA)
    for agent, printed in load_reference("atari49_summary").iterrows():
        where = "appendix, comparison with QUOTA" + (", and text on DLTV" if agent == "dltv" else "")
        scores = normalised[agent].dropna()
        one_fewer = float(scores.sum() / (len(scores) - 1))
        near = f"near {one_fewer:.2f}: the sum of {len(scores)} games divided by {len(scores) - 1}"
        for label in ("mean", "median"):
            said, value = printed[f"{label}_percent"], recomputed.loc[agent, f"{label}_percent"]
            because = near if label == "mean" and abs(one_fewer / said - 1) < 1e-3 else ""
            shown = (f"{NAMES[agent]}: {label}", where, f"{said:.2f} %", f"{value:.2f} %")
            claims.append(Claim(*shown, judge(said, value, digits=2), because))
    return claims


def win_claims() -> list[Claim]:
    """Every printed number of games won; a tie is not a win."""
    claims = []
    for row in load_reference("printed_wins").itertuples():
        found = wins(row.table, row.first, row.second)
        ties_count = row.wins == found.wins + found.ties
        verdict: Verdict = "holds" if row.wins == found.wins else "only if ties count" if ties_count else "fails"
        where = "main text, no-ops" if row.table == NO_OPS else "appendix, comparison with QUOTA"
        claims.append(
            Claim(f"{NAMES[row.first]} beats {NAMES[row.second]}", where, str(row.wins), found.text(), verdict)
        )
    return claims


def marks(table: str, mark: str) -> pd.DataFrame:
    """Each game's mark, and whether its score is above or equal to that of the best rival."""
    scores = raw(table)
    best = scores[MARKED[table, mark]].max(axis=1)  # where a rival has no score, the others decide
    columns = {
        "best_rival": best,
        "marked": scores[mark] == 1,
        "wins": scores["pqr"] > best,
        "ties": scores["pqr"] == best,
    }
    return pd.DataFrame(columns)


def mark_claims() -> list[Claim]:
    """Bold and asterisks of the PQR column against their meaning in the captions."""
    claims = []
    for (table, mark), rivals in MARKED.items():
        found = marks(table, mark)
        wrong = found.index[found["marked"] & ~found["wins"] & ~found["ties"]]
        tied = found.index[found["marked"] & found["ties"]]
        missing = found.index[~found["marked"] & found["wins"]]
        listed = {"marked but beaten": wrong, "marked on a tie": tied, "not marked": missing}
        because = "; ".join(f"{what}: {', '.join(games)}" for what, games in listed.items() if len(games))
        failing = len(wrong) or len(missing)
        verdict: Verdict = "fails" if failing else "only if ties count" if len(tied) else "holds"
        claim = f"{mark.removeprefix('pqr_')}: PQR wins against {', '.join(NAMES[r] for r in rivals)}"
        counts = f"{found['marked'].sum()} cells", f"{found['wins'].sum()} wins, {found['ties'].sum()} tied"
        claims.append(Claim(claim, f"appendix, {TITLES[table]}", *counts, verdict, because))
    return claims


def cell_claims() -> list[Claim]:
    """Single cells that are impossible, or differ between tables that should agree."""
    claims = []
    sticky, reference = raw(STICKY), human_random()
    for column in ("random", "human"):
        for game in sticky.index[sticky[column] != reference.loc[sticky.index, column]]:
            claim, where = f"{game}: score of the {column} player", f"appendix, {TITLES[STICKY]}"
            other = f"{reference.loc[game, column]:g} in the other tables"
            claims.append(Claim(claim, where, f"{sticky.loc[game, column]:g}", other, "contradicts itself"))
    early, late = raw(QUOTA), raw(NO_OPS)
    for before, after in (("pqr", "pqr"), ("qrdqn_zoo", "qrdqn")):
        for game in early.index[early[before] > late.loc[early.index, after]]:
            claim = f"{game}: best score of {NAMES[after]} up to 40M and up to 50M frames"
            printed = f"{early.loc[game, before]:g}, then {late.loc[game, after]:g}"
            where = "appendix, tables of raw scores"
            claims.append(Claim(claim, where, printed, "a best score cannot fall", "impossible"))
    return claims + written_claims("cells")
