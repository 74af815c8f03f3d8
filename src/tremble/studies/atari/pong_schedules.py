"""The paper's ablation on Pong: schedules of the perturbation, and random against optimistic perturbations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tremble.report import tables
from tremble.report.statistics import verdict
from tremble.studies.atari.results import area, of_kind
from tremble.studies.atari.tables import AtariRuns, atari_study, conditions, game_table, lead, shown, text

GAMES = ("pong",)
AGENTS = ("pqr", "pqr_const", "pqr_opt", "pqr_sqrt_log", "pqr_sqrt_log_opt")
CALLED = {
    "pqr": "PQR: Δ ~ 1/t",
    "pqr_const": "1/t⁰: Δ constant",
    "pqr_opt": "OPT: always the top quantile",
    "pqr_sqrt_log": "√(log t/t)",
    "pqr_sqrt_log_opt": "√(log t/t) + OPT",
}
MAXIMUM = 21.0
NEAR = 20.0
"""Mean score above which a run counts as having reached the maximum."""
EARLY, LATE = 1 / 3, 3 / 4
"""Early is the first third of a run, late its last quarter."""


@dataclass(frozen=True)
class Claim:
    """An ordering that the paper describes: the first is above the second, early or late."""

    text: str
    first: str
    second: str
    when: str


CLAIMS = (
    Claim("optimism learns quickly in the early stages", "pqr_opt", "pqr", "early"),
    Claim("… also with the schedule of DLTV", "pqr_sqrt_log_opt", "pqr", "early"),
    Claim("optimism converges without reaching the maximum", "pqr", "pqr_opt", "late"),
    Claim("… also with the schedule of DLTV", "pqr", "pqr_sqrt_log_opt", "late"),
    Claim("a set of fixed size ends with low performance", "pqr", "pqr_const", "late"),
    Claim("the schedule of p-DLTV degrades performance", "pqr", "pqr_sqrt_log", "late"),
)


def phases(curves: pd.DataFrame, frames: int) -> pd.DataFrame:
    """For each run the mean height of its early evaluations, and mean and standard deviation of its late ones."""
    rows = []
    for (agent, seed), curve in of_kind(curves, "evaluation").groupby(["agent", "seed"], sort=False):
        curve = curve.sort_values("frame")
        at, values = curve["frame"].to_numpy(), curve["value"].to_numpy()
        early, late = at <= max(EARLY * frames, at[0]), at > min(LATE * frames, at[-1] - 1)
        rows.append((agent, seed, area(at[early], values[early]), values[late].mean(), values[late].std()))
    return pd.DataFrame(rows, columns=["agent", "seed", "early", "late", "late_spread"])


def top_table(found: pd.DataFrame, agents: Sequence[str]) -> str:
    """Early and late scores, and the number of seeds that reach the maximum."""
    rows = []
    for agent in agents:
        here = found[found["agent"] == agent]
        cells = ["–"] * 5
        if len(here):
            between = f"{here['late'].std(ddof=1):.2f}" if len(here) > 1 else "–"
            reached = f"{(here['late'] >= NEAR).sum()} of {len(here)}"
            cells = [text(here["early"]), text(here["late"]), between, f"{here['late_spread'].mean():.2f}", reached]
        rows.append([CALLED.get(agent, agent), *cells])
    header = ["curve", "early [95 %]", "late [95 %]", "late: spread of seeds", "late: spread in time", "at the maximum"]
    return tables.markdown(header, rows)


def stability(found: pd.DataFrame, *, quick: bool) -> str:
    """Verdict on the claim that only PQR reaches the maximum in every seed."""
    if quick:
        return "no verdict"
    lowest = found.groupby("agent", sort=False)["late"].min()
    others = [CALLED.get(agent, agent) for agent in lowest.index[lowest >= NEAR] if agent != "pqr"]
    if "pqr" not in lowest:
        return "there are no runs of PQR"
    if lowest["pqr"] < NEAR:
        return "contradicted here: PQR does not reach it in every seed"
    if others:
        return f"partly supported: PQR reaches it in every seed, but so does {', '.join(others)}"
    return "supported: PQR reaches it in every seed, and none of the others does"


def report(runs: AtariRuns) -> str:
    """Scores early and late, and verdicts on the paper's ordering."""
    plan = runs.plan
    found = phases(runs.curves, plan.frames)
    found.round(4).to_csv(runs.options.out / "phases.csv", index=False, lineterminator="\n")
    supported, rows = 0, []
    for claim in CLAIMS:
        first, second = (found[found["agent"] == agent] for agent in (claim.first, claim.second))
        interval = lead(first, second, claim.when)
        supported += interval is not None and verdict(interval, quick=plan.quick) == "reproduced"
        if {claim.first, claim.second} <= set(plan.agents):
            name = f"{CALLED[claim.first]} − {CALLED[claim.second]}, {claim.when}"
            rows.append([claim.text, name, shown(interval, quick=plan.quick)])
    tally = f"{supported} of {len(CLAIMS)} orderings are supported at {plan.frames:,} frames.\n\n"
    return f"""# Schedules of the perturbation on Pong

{conditions(runs)}

The paper's figure has five curves without numbers, and does not say how long they are or which scales the other schedules have; ours are Δ = 1 for the constant, and DLTV's 50 in
√(log t/t). Its Pong is “v4”; protocol `paper_v4` is the reading in which that means a random frame skip.

![curves](curves.png)

## Early and late

*Early* is the mean height of the curve in the first third of the run, *late* the mean of the evaluations in its last quarter; the maximum is {MAXIMUM:g}, and a run is *at the maximum* if its
late mean is at least {NEAR:g}.

{top_table(found, plan.agents)}
## The paper's ordering

Differences seed by seed: *supported* if the interval lies above 0, *contradicted* if below, *inconclusive* otherwise.

{tables.markdown(["the paper says", "difference", "ours [95 %]"], rows, 2)}
*PQR is the only method that stably achieves the maximum score*: {stability(found, quick=plan.quick)}.

{"" if plan.quick else tally}## Scores

{game_table(runs, "evaluation")}
Raw data: `phases.csv`, `curves.csv`, `scores.csv` (one row a run), `final.csv` (every fresh game).
"""


STUDY = atari_study(
    "pong-schedules",
    "the paper's ablation on Pong: five schedules of the perturbation; --set frames=…, protocol=…",
    report,
    AGENTS,
    games=GAMES,
    games_fixed=True,
)
