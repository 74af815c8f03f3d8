"""Search for the hyperparameters of control problems: one factor at a time, on seeds used nowhere else."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tremble.report import tables
from tremble.studies.kit import Options, Results, Study
from tremble.studies.parts import evaluated_cell, over_seeds, values, write_runs
from tremble.sweep_records import Cell


@dataclass(frozen=True)
class Search:
    """Candidates for one environment: named ones, and changes of the last of those."""

    env: str
    steps: int
    named: dict[str, dict[str, Any]]
    changes: list[dict[str, Any]]

    def candidates(self) -> dict[str, dict[str, Any]]:
        """Changes of the hyperparameters, by name."""
        base = list(self.named.values())[-1]
        changed = {", ".join(f"{k} {v}" for k, v in change.items()): base | change for change in self.changes}
        return self.named | changed


def read_searches() -> list[Search]:
    """The searches in `data/candidates.toml`."""
    text = (files("tremble.studies.control") / "data" / "candidates.toml").read_text(encoding="utf-8")
    return [Search(**entry) for entry in tomllib.loads(text)["search"]]


SEARCHES = read_searches()


def cells(options: Options) -> list[Cell]:
    """PQR with every candidate."""
    made = []
    for search in SEARCHES:
        steps = options.steps if options.quick else search.steps
        how: dict[str, Any] = {"hyperparameters": "control", "evaluations": 10, "episodes": 5}
        for name, settings in search.candidates().items():
            made.append(evaluated_cell(f"{search.env} | {name}", "pqr", search.env, steps, settings, **how))
    return made


def section(search: Search, results: Results) -> str:
    """Scores of every candidate, best mean first."""
    found = {name: results[f"{search.env} | {name}"] for name in search.candidates()}
    best_first = sorted((item for item in found.items() if item[1]), key=lambda x: -np.mean(values(x[1], "final.mean")))
    rows = [
        [name, ", ".join(f"{score:.0f}" for score in values(runs, "final.mean")), over_seeds(runs, "final.mean").text()]
        for name, runs in best_first
    ]
    names = "; ".join(f"*{name}* changes {listed(settings)}" for name, settings in search.named.items())
    return f"""## {search.env}, {search.steps:,} steps

Relative to the `control` hyperparameters, {names}. The others change {list(search.named)[-1]!r} further.

{tables.markdown(["changed", "mean return of 100 episodes, by seed", "mean [95 %]"], rows)}"""


def listed(settings: dict[str, Any]) -> str:
    """Settings as text."""
    return ", ".join(f"`{name}` to {value}" for name, value in settings.items()) or "nothing"


def analyse(results: Results, options: Options) -> str:
    """Scores of every candidate."""
    columns = {"mean_return_of_100_episodes": "final.mean:.3f"}
    write_runs(options.out / "search.csv", results, columns, ["candidate"])
    sections = "\n".join(section(search, results) for search in SEARCHES)
    return f"""# Search for the settings of the control columns

PQR, seeds from {STUDY.first_seed}; the chosen settings are evaluated on other seeds by `tremble study control`.

{sections}
Raw data: `search.csv`.
"""


STUDY = Study(
    "control-search",
    "how the settings for small control problems were found, on seeds used nowhere else",
    cells,
    analyse,
    seeds=3,
    first_seed=1_000,
    quick_seeds=1,
    quick_steps=12_000,
    partial=True,
)
