"""Search for the hyperparameters of control problems: one factor at a time, on seeds used nowhere else."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from tremble.report import tables
from tremble.report.statistics import mean_interval
from tremble.studies.kit import Cell, Options, Results, Study
from tremble.studies.lunarlander.study import load_result


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
    return [
        Search(
            entry["env"],
            entry["steps"],
            {name: _settings(changes) for name, changes in entry["named"].items()},
            [_settings(changes) for changes in entry["changes"]],
        )
        for entry in tomllib.loads(text)["search"]
    ]


def _settings(changes: dict[str, Any]) -> dict[str, Any]:
    """TOML has lists where agents have tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}


SEARCHES = read_searches()


def cells(options: Options) -> list[Cell]:
    """PQR with every candidate."""
    made = []
    for search in SEARCHES:
        steps = options.steps if options.quick else search.steps
        run = {"evaluate_every": max(1000, steps // 10), "evaluate_episodes": 5, "record_every": 1000}
        for name, settings in search.candidates().items():
            made.append(Cell(f"{search.env} | {name}", "pqr", settings, {}, search.env, "control", run, steps))
    return made


def listed(settings: dict[str, Any]) -> str:
    """Settings as text."""
    return ", ".join(f"`{name}` to {value}" for name, value in settings.items()) or "nothing"


def analyse(results: Results, options: Options) -> str:
    """Scores of every candidate, best mean first, including those of an earlier search in the same directory."""
    heads = ("candidate", "seed", "mean_return_of_100_episodes")
    log = options.out / ("search-quick.csv" if options.quick else "search.csv")
    rows = tables.read_csv(log) if log.exists() else []
    scores = {(row[heads[0]], int(row[heads[1]])): float(row[heads[2]]) for row in rows}
    scores |= {(label, f.seed): f.final.mean for label in results for f in results[label]}
    known = [key for label in results for key in sorted(scores) if key[0] == label]
    tables.write_csv(log, heads, [[*key, f"{scores[key]:.3f}"] for key in known])
    sections = []
    for search in SEARCHES:
        found = {
            name: [scores[key] for key in known if key[0] == f"{search.env} | {name}"] for name in search.candidates()
        }
        tried = {name: runs for name, runs in found.items() if runs}
        best_first = sorted(tried.items(), key=lambda item: -np.mean(item[1]))
        names = "; ".join(f"*{name}* changes {listed(settings)}" for name, settings in search.named.items())
        table = tables.markdown(
            ["changed", "mean return of 100 episodes, by seed", "mean [95 %]"],
            [[name, ", ".join(f"{s:.0f}" for s in runs), mean_interval(runs).text()] for name, runs in best_first],
        )
        sections.append(
            f"## {search.env}, {search.steps:,} steps\n\nRelative to the `control` hyperparameters, {names}. "
            f"The others change {list(search.named)[-1]!r} further.\n\n{table}"
        )
    body = "\n".join(sections)
    return f"""# Search for the settings of the control columns

PQR, seeds from {STUDY.first_seed}; the chosen settings are evaluated on other seeds by `tremble study control`. Promising candidates
have more seeds.

{body}
Raw data: `{log.name}`.
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
    load=load_result,
    partial=True,
)
