"""The demo: the paper's four agents on N-Chain, in about three minutes."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np

from tremble.report import figures
from tremble.studies.illustrations import figures as illustrate
from tremble.studies.kit import Options, Results, Study
from tremble.studies.nchain import counts as nchain_counts
from tremble.studies.nchain import returns as nchain_returns
from tremble.studies.nchain.result import load_result
from tremble.studies.nchain.settings import AGENTS, main_cells
from tremble.sweep_records import Cell

RATE = 1e-3
"""With the paper's learning rate, 5e-5, values have not converged after 20,000 steps."""
SETTINGS = f"the paper's settings but for the learning rate ({RATE:g} instead of 5e-05)"
REMARK = f"""One setting is not the paper's: the learning rate is {RATE:g} instead of 5e-05. With the paper's, values have
not converged after 20,000 steps and seed noise dominates; `tremble demo --full` shows that."""
FULL_REMARK = """The paper's settings. The variance between seeds is larger than that between agents: a run finds the left end early, late or
never, so ten seeds do not show which agent is better."""


def cells(options: Options) -> list[Cell]:
    """The four agents at a learning rate at which every seed learns."""
    return [Cell(agent, agent, agent_options={"learning_rate": RATE}) for agent in AGENTS]


def summary(results: Results) -> str:
    """Share of optimal actions of each agent, and the distance of its predicted return to the truth."""
    lines = []
    for agent in AGENTS:
        share = np.mean([run.count / run.steps[-1] for run in results[agent]])
        w2 = np.median([run.w2_left for run in results[agent]])
        lines.append(
            f"- **{figures.NAMES[agent]}** took the optimal action in {share:.0%} of its steps; its return of going left "
            f"is {w2:.2f} from the truth (W2, median)."
        )
    return "\n".join(lines)


def report(results: Results, options: Options, settings: str, remark: str, about_seeds: str) -> str:
    """Counts and returns as in the full studies, and the illustrations."""
    illustrate.illustrate(options.out)
    counts = nchain_counts.analyse(results, options, settings, about_seeds)
    returns = nchain_returns.analyse(results, options)
    return f"""# tremble demo

{remark}

The left end is better by one, the right end has the larger variance. An optimistic agent may keep choosing the larger variance although its predictions of both are accurate:

{summary(results)}

## Why randomise?

![why randomise](why_randomise.png)

Two actions have the same mean. Optimism takes the wider one every time, for as long as its bonus lasts. A
randomised criterion takes either, and once one of them has the larger mean, it takes that one.

![how PQR scores](how_pqr_scores.png)

PQR's score is a random re-weighting of an action's own quantiles: it stays within their range, excludes an action that is inferior
under every weighting, and converges to the mean as Δ shrinks.

{_deeper(counts)}
{_deeper(returns)}"""


def _deeper(text: str) -> str:
    """The same markdown, one heading level down."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in text.splitlines()) + "\n"


STUDY = Study(
    "demo",
    "four agents on N-Chain in about three minutes",
    cells,
    partial(report, settings=SETTINGS, remark=REMARK, about_seeds=""),
    seeds=5,
    quick_seeds=1,
    load=load_result,
)
FULL = dataclasses.replace(
    STUDY,
    cells=main_cells,
    analyse=partial(report, settings="the paper's settings", remark=FULL_REMARK, about_seeds=nchain_counts.BIMODAL),
    seeds=10,
)
