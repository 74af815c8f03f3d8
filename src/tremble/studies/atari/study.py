"""Atari: chosen agents on chosen games under one published protocol, compared with published scores."""

from __future__ import annotations

from tremble.report.figures import name_of
from tremble.studies.atari.plan import Plan
from tremble.studies.atari.results import PUBLISHED
from tremble.studies.atari.tables import KINDS, AtariRuns, atari_study, conditions, game_table, summary_table


def without_equal(plan: Plan) -> str:
    """Agents without published scores under this protocol, and the protocols under which there are some."""
    lines = []
    for agent in plan.agents:
        if agent in PUBLISHED[plan.protocol.name]:
            continue
        elsewhere = [f"`{name}`" for name, columns in PUBLISHED.items() if agent in columns]
        where = f"; there are some under {', '.join(elsewhere)}, which cannot be compared" if elsewhere else ""
        lines.append(f"- {name_of(agent)} has no published scores under `{plan.protocol.name}`{where}.")
    return "\n".join(lines)


def report(runs: AtariRuns) -> str:
    """Every agent on every game, and summaries over games."""
    plan = runs.plan
    kind = plan.protocol.published_returns
    games = "\n".join(f"### Returns of {returns}\n\n{game_table(runs, returns)}" for returns in KINDS)
    summaries = "\n".join(
        f"### {measure.title()}\n\n{summary_table(runs, kind, measure)}" for measure in ("best", "last")
    )
    return f"""# Atari under `{plan.protocol.name}`

{conditions(runs)}

![curves](curves.png)

*Scores in evaluations; mean and range over seeds.*

## Game by game

*Best* is the highest value of a run's curve, as papers report it, *last* its last, *mean height* the area under it over its length; means over seeds with 95 % intervals.
Published are best scores of returns of {kind}.

{games}
{without_equal(plan)}

## Human-normalised, all games together

0 is random play, 1 the human score; returns of {kind}, at {plan.frames:,} frames.

{summaries}
![training](training.png)

Raw data: `curves.csv`, `scores.csv` (one row a run), `final.csv` (every fresh game).
"""


STUDY = atari_study(
    "atari",
    "agents on Atari under a protocol; --set games=…, agents=…, protocol=…, frames=…, speed=…",
    report,
    ("qrdqn", "dltv", "pqr"),
    games=("pong", "boxing", "breakout"),
)
