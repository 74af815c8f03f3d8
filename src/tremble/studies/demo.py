"""The demo: the paper's four agents on N-Chain, small enough to wait for."""

from __future__ import annotations

from tremble.studies import illustrate, nchain_counts, nchain_returns
from tremble.studies.nchain_settings import main_cells
from tremble.studies.runner import Options, Results, Study

CAUTION = """Seeds differ more than agents do here: a run finds the left end early, late or never. So few seeds show how the agents
behave, not which is better, and neither order nor size of these counts should be read as a result."""


def analyse(results: Results, options: Options) -> str:
    """The counts and returns of the real studies, with few seeds, and the pictures of the idea."""
    illustrate.illustrate(options.out)
    counts = nchain_counts.analyse(results, options)
    returns = nchain_returns.analyse(results, options)
    return f"""# tremble demo

{CAUTION}

The full setting is `tremble study nchain-counts`; the verdicts below are what {options.seeds} seeds allow.

## Why randomise?

![why randomise](why_randomise.png)

Two actions have the same mean. Optimism reads the wider one as "unexplored" and takes it every time, for as long as its bonus lasts. A
randomised criterion takes either, and once one of them is better, takes that one.

![how PQR scores](how_pqr_scores.png)

PQR's score is a random re-weighting of an action's own quantiles: it stays within their range, excludes an action that is inferior
under every weighting, and settles on the mean as Δ shrinks.

{_deeper(counts)}
{_deeper(returns)}"""


def _deeper(text: str) -> str:
    """The same markdown, one heading level down."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in text.splitlines()) + "\n"


STUDY = Study("demo", "four agents on N-Chain in about three minutes", main_cells, analyse, seeds=5, quick_seeds=1)
