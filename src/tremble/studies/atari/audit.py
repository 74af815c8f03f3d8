"""The paper's Atari numbers, recomputed from its raw tables: every summary, count, bold and asterisk, with a verdict."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from tremble.report import tables
from tremble.studies.atari import claims as judged
from tremble.studies.atari import figures as atari_figures
from tremble.studies.atari.claims import AGENTS, NAMES, NO_OPS, QUOTA, STICKY, Claim, measures, percent, wins
from tremble.studies.kit import Options, Results, Study

HEADER = ("claim", "where", "printed", "recomputed", "verdict")
SETTINGS = {NO_OPS: "30 no-ops, 50M", STICKY: "sticky, 50M (Enduro repaired)", QUOTA: "30 no-ops, 40M"}
LARGEST = ["VideoPinball", "Atlantis", "Berzerk"]
"""Games with the largest normalised scores."""


def sections() -> dict[str, list[Claim]]:
    """All claims, in the order of the report."""
    return {
        "In words": judged.written_claims("words"),
        "Summary table of 55 games": judged.summary_claims(),
        "Games won": judged.win_claims(),
        "Bold and asterisks": judged.mark_claims(),
        "Comparison with QUOTA and DLTV": judged.quota_claims(),
        "Single cells": judged.cell_claims(),
    }


def claim_table(claims: Sequence[Claim]) -> str:
    """claim | where | printed | recomputed | verdict, with the reason below the verdict where there is one."""
    rows = []
    for claim in claims:
        verdict = claim.verdict if claim.verdict.startswith("holds") else f"**{claim.verdict}**"
        because = f": {claim.because}" if claim.because else ""
        rows.append([claim.claim, claim.where, claim.printed, claim.recomputed, verdict + because])
    return tables.markdown(HEADER, rows, 5)


def measure_table() -> str:
    """Four summaries and two means without the largest games."""
    rows = []
    for table, setting in SETTINGS.items():
        normalised, found = percent(table, repaired=True), measures(table)
        without = normalised.drop(index="VideoPinball").mean()
        without_three = normalised.drop(index=LARGEST, errors="ignore").mean()
        for agent in AGENTS[table]:
            numbers = [*found.loc[agent], without[agent], without_three[agent]]
            rows.append([setting, NAMES[agent], *(f"{x:.1f}" for x in numbers)])
    summaries = [
        "mean",
        "median",
        "IQM",
        "optimality gap",
        "mean without VideoPinball",
        "and without Atlantis, Berzerk",
    ]
    return tables.markdown(["setting", "agent", *summaries], rows, 2)


def win_table() -> str:
    """PQR against every other agent."""
    rows = []
    for table, setting in SETTINGS.items():
        for rival in AGENTS[table][:-1]:
            found = wins(table, "pqr", rival, repaired=True)
            rows.append([setting, NAMES[rival], found.wins, found.ties, found.losses, f"{found.sign_test:.3f}"])
    return tables.markdown(("setting", "PQR against", "won", "tied", "lost", "sign test p"), rows, 2)


def findings(counted: Counter[str]) -> str:
    """The findings as text, with numbers from the same computation as the tables."""
    no_ops, sticky = percent(NO_OPS), percent(STICKY, repaired=True)
    middle, gap = measures(NO_OPS)["iqm"], measures(STICKY)["optimality_gap"]
    share = no_ops.loc["VideoPinball", "pqr"] / no_ops["pqr"].sum()
    few = no_ops.drop(index=LARGEST).mean()
    rest = sticky.drop(index="VideoPinball").mean()
    assert gap.idxmin() == rest.idxmax() == "pqr", "stated in the text below"
    dltv = wins(QUOTA, "pqr", "dltv")
    return f"""- **Under no-ops PQR is ahead of QR-DQN**: {wins(NO_OPS, "pqr", "qrdqn").text()}; interquartile mean {middle["pqr"]:.0f} % against {middle["qrdqn"]:.0f} %. The “562 %” is a
  difference of percentage points between means, and {100 * share:.0f} % of PQR's mean is one game, VideoPinball; without VideoPinball, Atlantis and Berzerk the two means are {few["pqr"]:.0f} % and {few["qrdqn"]:.0f} %.
- **It is level with IQN** (interquartile means {middle["pqr"]:.1f} % and {middle["iqn"]:.1f} %, medians {no_ops["pqr"].median():.0f} % and {no_ops["iqn"].median():.0f} %, {wins(NO_OPS, "pqr", "iqn").text()}) **and behind Rainbow**
  ({wins(NO_OPS, "pqr", "rainbow").text()}), where the text says better and comparable.
- **Under sticky actions PQR has the smallest optimality gap** ({gap["pqr"]:.0f} %; IQN {gap["iqn"]:.0f} %) **and the highest mean without VideoPinball** ({rest["pqr"]:.0f} %; IQN {rest["iqn"]:.0f} %), which the
  paper does not mention. But its baselines there are Dopamine's returns *during training* with ε = 0.01, while PQR's own scores are presumably evaluations with ε = 0.001, so part of that lead may be the measurement.
- **One slip explains the sticky summary**: DQN and IQN are exchanged on Enduro. Exchanging them back makes {counted["holds once Enduro is repaired"]} cells right at once.
- **The comparison with QUOTA and DLTV does not follow from its table**: no printed mean does, and “PQR beats DLTV in 39 games” is {dltv.wins} ({dltv.wins + dltv.ties} with ties, of {dltv.games}).
- Scores are best evaluations of a run, a maximum of noisy numbers, and no spread over seeds is printed. Nothing here can say how much of a difference is chance of training; the sign test below treats games as the sample.
"""


def analyse(results: Results, options: Options) -> str:
    """Recompute everything; there are no runs."""
    claims = sections()
    rows = [[section, *dataclasses.astuple(claim)] for section, listed in claims.items() for claim in listed]
    tables.write_csv(options.out / "claims.csv", ("section", *HEADER, "because"), rows)
    atari_figures.write_games(options)
    atari_figures.draw_leaving_out(options)
    for table in (NO_OPS, STICKY):
        atari_figures.draw_games(table, options)
    counted: Counter[str] = Counter(claim.verdict for listed in claims.values() for claim in listed)
    total = sum(counted.values())
    shares = tables.markdown(("verdict", "claims"), [[v, n] for v, n in counted.most_common()], 1)
    parts = "\n".join(f"### {name}\n\n{claim_table(listed)}" for name, listed in claims.items())
    return f"""# The paper's Atari numbers, recomputed

*Pitfall of Optimism* prints raw scores for every game, and summaries of them. This study recomputes the summaries from the raw scores, {total} claims in
all, and says which of them hold. Nothing is trained. Human-normalised score = 100 (score − random) / (human − random), with the random and human scores
printed in the same table; a win is a strictly higher score.

{shares}
## Summary of findings

{findings(counted)}
## Claims

{parts}
*Holds, rounded otherwise*: cut off or rounded up instead of rounded. *Holds once Enduro is repaired*: with the two exchanged cells put back. *Depends on the
measure*: the mean says so, others do not.

## Differences in conditions

| table | PQR | the others |
| --- | --- | --- |
| no-ops, 50M | the paper's runs, protocol `paper` | DQN Zoo, protocol `dqn_zoo`: evaluations, 5 seeds |
| sticky, 50M | the paper's runs, protocol `paper_sticky` | Dopamine, protocol `dopamine`: returns of training, 5 seeds; QR-DQN, IQN and Rainbow with 3-step updates, QR-DQN and Rainbow with prioritised replay |
| no-ops, 40M | the paper's runs | DQN Zoo at 40M frames; QUOTA and its QR-DQN at 40M *steps* (160M frames), 16 workers, no replay; DLTV reproduced by the authors |

The page on [protocols](../../protocols.md) lists the differences. Our own tables do not mix protocols.

## Other summaries

{measure_table()}
All in percent; the optimality gap is what is missing to the human, so less is better.

![leaving out](leaving_out.png)

## Game by game

{win_table()}
Two-sided sign test, ties left out.

![games under no-ops](games_no_ops.png)

![games under sticky actions](games_sticky.png)

Data: `claims.csv`, `games.csv` (normalised scores as printed, in percent). Made by `tremble study atari-audit`.
"""


STUDY = Study(
    "atari-audit",
    "the paper's Atari summaries, counts and marks recomputed from its raw scores; trains nothing",
    lambda options: [],
    analyse,
    has_quick_version=False,
)
