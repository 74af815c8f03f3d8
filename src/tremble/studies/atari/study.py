"""Atari: chosen agents on chosen games under one published protocol, scores beside the published ones."""

from __future__ import annotations

from tremble.studies.atari.bill import bill
from tremble.studies.atari.plan import Plan, cells_of, choices, plan_of
from tremble.studies.atari.results import PUBLISHED, load_run
from tremble.studies.atari.tables import KINDS, bullet, conditions, draw, game_table, name_of, summary_table, write_raw
from tremble.studies.kit import Cell, Options, Results, Study

FRAMES = 10_000_000
"""PQR's perturbation falls to 1 after about 4M frames; in shorter runs there would be nothing of what follows."""


def cells(options: Options) -> list[Cell]:
    """Every agent on every game."""
    return cells_of(plan_of(STUDY, options))


def without_equal(plan: Plan) -> str:
    """Which agents have no published number to stand beside, and where there is one."""
    lines = []
    for agent in plan.agents:
        if agent in PUBLISHED[plan.protocol.name]:
            continue
        elsewhere = [f"`{name}`" for name, columns in PUBLISHED.items() if agent in columns]
        where = f"; there are some under {', '.join(elsewhere)}, which do not compare" if elsewhere else ""
        lines.append(f"{name_of(agent)} has no published scores under `{plan.protocol.name}`{where}.")
    return bullet(lines)


def analyse(results: Results, options: Options) -> str:
    """Raw data, figures and report."""
    plan = plan_of(STUDY, options)
    curves, scores = write_raw(results, plan, options.out)
    draw(curves, options.out)
    kind = plan.protocol.published_returns
    games = "\n".join(f"### Returns of {returns}\n\n{game_table(scores, results, plan, returns)}" for returns in KINDS)
    summaries = "\n".join(
        f"### {title}\n\n{summary_table(scores, plan, kind, measure)[0]}"
        for measure, title in (("best", "Best"), ("last", "Last"))
    )
    return f"""# Atari under `{plan.protocol.name}`

{conditions(results, plan)}

![curves](curves.png)

*Points in evaluations; mean and range of seeds.*

## Game by game

*Best* is the highest value of a run's curve, as papers report it, *last* its last, *mean height* the area under it over its length; means over seeds with 95 % intervals.
Published are best scores of returns of {kind}.

{games}
{without_equal(plan)}

## Human-normalised, all games together

0 is play at random, 1 the human; returns of {kind}, at {plan.frames:,} frames.

{summaries}
![training](training.png)

Raw data: `curves.csv`, `scores.csv` (one row a run), `final.csv` (every fresh game).
"""


STUDY = Study(
    "atari",
    "agents on Atari under a protocol; --set games=…, agents=…, protocol=…, frames=…, speed=…",
    cells,
    analyse,
    seeds=3,
    quick_seeds=1,
    steps=FRAMES // 4,
    quick_steps=2_000,
    load=load_run,
    choices=choices(("pong", "boxing", "breakout"), "paper", ("qrdqn", "dltv", "pqr"), FRAMES),
    bill=bill,
    partial=True,
)
