"""The paper's ablation on Pong: schedules of the perturbation, and random against optimistic perturbations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tremble.report import tables
from tremble.report.statistics import verdict
from tremble.studies.atari.training import AtariRun, AtariRuns, area, atari_study, lead, text
from tremble.studies.kit import Results
from tremble.studies.parts import difference, over_seeds, values, write_runs

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


@dataclass(frozen=True)
class Phases:
    """One run."""

    seed: int
    early: float
    """Mean height of its early evaluations."""
    late: float
    late_spread: float
    """Mean and standard deviation of its late ones."""


def phases(run: AtariRun, frames: int) -> Phases:
    """The phases of a run of so many frames."""
    at, means = run.frames, run.means
    early, late = at <= max(EARLY * frames, at[0]), at > min(LATE * frames, at[-1] - 1)
    ends = means[late]
    return Phases(run.seed, area(at[early], means[early]), float(ends.mean()), float(ends.std()))


def top_table(found: Results) -> str:
    """Early and late scores, and the number of seeds that reach the maximum."""
    rows = []
    for agent, runs in found.items():
        late = np.array(values(runs, "late"))
        cells = ["–"] * 5
        if len(late):
            between = f"{late.std(ddof=1):.2f}" if len(late) > 1 else "–"
            reached = f"{(late >= NEAR).sum()} of {len(late)}"
            means = [text(over_seeds(runs, name)) for name in ("early", "late")]
            cells = [*means, between, f"{np.mean(values(runs, 'late_spread')):.2f}", reached]
        rows.append([CALLED.get(agent, agent), *cells])
    header = ["curve", "early [95 %]", "late [95 %]", "late: spread of seeds", "late: spread in time", "at the maximum"]
    return tables.markdown(header, rows)


def stability(found: Results, *, quick: bool) -> str:
    """Verdict on the claim that only PQR reaches the maximum in every seed."""
    if quick:
        return "no verdict"
    reached = [agent for agent, runs in found.items() if runs and min(values(runs, "late")) >= NEAR]
    others = [CALLED.get(agent, agent) for agent in reached if agent != "pqr"]
    if not found.get("pqr"):
        return "there are no runs of PQR"
    if "pqr" not in reached:
        return "contradicted here: PQR does not reach it in every seed"
    if others:
        return f"partly supported: PQR reaches it in every seed, but so does {', '.join(others)}"
    return "supported: PQR reaches it in every seed, and none of the others does"


def report(runs: AtariRuns) -> str:
    """Scores early and late, and verdicts on the paper's ordering."""
    plan = runs.plan
    found = {agent: [phases(run, plan.frames) for run in runs.of("Pong", agent)] for agent in plan.agents}
    numbers = {name: f"{name}:.4f" for name in ("early", "late", "late_spread")}
    write_runs(runs.options.out / "phases.csv", found, numbers, ["agent"])
    supported, rows = 0, []
    for claim in CLAIMS:
        if {claim.first, claim.second} <= found.keys():
            pair = found[claim.first], found[claim.second]
            supported += verdict(difference(*pair, claim.when), quick=plan.quick) == "reproduced"
            name = f"{CALLED[claim.first]} − {CALLED[claim.second]}, {claim.when}"
            rows.append([claim.text, name, lead(*pair, claim.when, quick=plan.quick)])
    tally = f"{supported} of {len(CLAIMS)} orderings are supported at {plan.frames:,} frames.\n\n"
    return f"""The paper's figure has five curves without numbers, and does not say how long they are or which scales the other schedules have; ours are Δ = 1 for the constant, and DLTV's 50 in
√(log t/t). Its Pong is “v4”; protocol `paper_v4` is the reading in which that means a random frame skip.

## Early and late

*Early* is the mean height of the curve in the first third of the run, *late* the mean of the evaluations in its last quarter; the maximum is {MAXIMUM:g}, and a run is *at the maximum* if its
late mean is at least {NEAR:g}.

{top_table(found)}
## The paper's ordering

Differences seed by seed: *supported* if the interval lies above 0, *contradicted* if below, *inconclusive* otherwise.

{tables.markdown(["the paper says", "difference", "ours [95 %]"], rows, 2)}
*PQR is the only method that stably achieves the maximum score*: {stability(found, quick=plan.quick)}.

{"" if plan.quick else tally}Raw data: `phases.csv`.
"""


STUDY = atari_study(
    "pong-schedules",
    "the paper's ablation on Pong: five schedules of the perturbation; --set frames=…, protocol=…",
    report,
    AGENTS,
    title="Schedules of the perturbation on Pong",
    games=GAMES,
    games_fixed=True,
)
