"""Directories of sweeps as finished runs leave them, made without training: for tests of reports and results.

Files are real, numbers are drawn. Of ten thousand runs each takes about a millisecond.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from tremble.sweep_records import RESULTS, Cell, Outcome, SweepData, SweepRun, Trial, as_text, outcome_file

VERSIONS = {"tremble": "0.1.0", "jax": "0.10.2", "numpy": "2.4.6"}
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
HOSTILE = (
    "<script>alert(1)</script>",
    "**bold** | `code` [link](javascript:alert(1))",
    "$\\frac{$ and $x^$",
    "line\nbreak\x1b[31m\u202eright to left",
    "</svg></style><img src=x onerror=alert(1)>",
    "=HYPERLINK(1)",
)
"""Names that something might interpret: HTML, markdown, formulas, terminals, spreadsheets."""


@dataclass(frozen=True)
class Shape:
    """What each run of a made sweep has."""

    steps: int = 10_000
    evaluations: int = 8
    evaluate_episodes: int = 4
    final_episodes: int = 10
    training_episodes: int = 30
    atoms: int = 21


@dataclass(frozen=True)
class Ending:
    """How one run ended, if not well."""

    state: str
    cause: str = ""


def spec_of(cell: Cell, seed: int, shape: Shape) -> dict:
    """The fields of `RunSpec` in a file."""
    spec = {
        "agent": cell.agent,
        "env": cell.env,
        "steps": cell.steps or shape.steps,
        "seed": seed,
        "hyperparameters": cell.hyperparameters,
        "agent_options": cell.agent_options,
        "env_options": cell.env_options,
        "record_every": 500,
        "n_envs": 1,
        "parallel": False,
        "evaluate_every": shape.steps // shape.evaluations if shape.evaluations else 0,
        "evaluate_episodes": shape.evaluate_episodes,
        "evaluate_steps": 0,
        "final_episodes": shape.final_episodes,
        "evaluate_env": None,
    }
    return spec | cell.run_options


def make_run(directory: Path, cell: Cell, seed: int, level: float | None, shape: Shape, rng) -> None:
    """The files of a run whose score is ``level`` by every metric of evaluation after training; None: not finite."""
    directory.mkdir(parents=True, exist_ok=True)
    spec = spec_of(cell, seed, shape)
    described = {"spec": spec, "settings": {"agent_settings": {}, "env_settings": {}}, "env_name": cell.env}
    (directory / "config.json").write_text(json.dumps(described))
    steps, top = spec["steps"], 0.0 if level is None else level
    noise = rng.normal(size=(max(shape.evaluations, 1), shape.evaluate_episodes)) * (abs(top) * 0.05 + 0.01)
    evaluations = []
    for i in range(shape.evaluations):
        part = (i + 1) / shape.evaluations
        returns = (top * (1 - np.exp(-4 * part)) + noise[i]).tolist()
        row = {"step": int(part * steps), "mean": float(np.mean(returns)), "std": 0.0, "returns": returns}
        evaluations.append(row | {"lengths": [20] * len(returns)})
    write_rows(directory, "evaluations", evaluations)
    count = shape.training_episodes
    episodes = [
        {"step": (i + 1) * steps // count, "return": top * 0.9 * (i + 1) / count, "length": 20} for i in range(count)
    ]
    write_rows(directory, "episodes", episodes)
    rows = [
        {"step": steps * (i + 1) // 4, "updates": 1.0, "episodes": 2.0, "optimal_share": (i + 1) / 4, "loss": 0.5}
        for i in range(4)
    ]
    write_rows(directory, "metrics", rows)
    write_rows(directory, "timing", [{"step": steps, "seconds": 12.5}])
    if shape.final_episodes:
        write_rows(directory, "final", [final_row(level, steps, weights, shape, rng) for weights in ("last", "best")])


def final_row(level: float | None, steps: int, weights: str, shape: Shape, rng) -> dict:
    """An evaluation after training whose mean is the level, with predictions that are a tenth too high."""
    n, top = shape.final_episodes, 0.0 if level is None else level
    spread = abs(top) * 0.1 + 0.01
    drawn = rng.normal(size=n)
    returns = top + spread * (drawn - drawn.mean())
    atoms = top * 1.1 + spread * np.linspace(-2, 2, shape.atoms)
    at = np.quantile(atoms, LEVELS)
    return {
        "step": steps,
        "weights": weights,
        "weights_step": steps if weights == "last" else steps // 2,
        "mean": None if level is None else float(returns.mean()),
        "std": spread,
        "returns": returns.tolist(),
        "discounted": returns.tolist(),
        "lengths": [20] * n,
        "truncated": [False] * n,
        "calibration": {
            "w1": abs(top) * 0.1 + 0.01,
            "w2": abs(top) * 0.12 + 0.01,
            "mean_predicted": top * 1.1,
            "mean_happened": top,
            "coverage": {str(q): float((returns <= x).mean()) for q, x in zip(LEVELS, at, strict=True)},
            "truncated": 0.0,
        },
        "predicted": [atoms.tolist()] * n,
    }


def write_rows(directory: Path, log: str, rows: Sequence[Mapping]) -> None:
    """A log; no file where there are no rows."""
    if rows:
        (directory / f"{log}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@dataclass
class SweepMaker:
    """Makes a sweep's directory, and the `SweepData` that reads it."""

    directory: Path
    cells: Sequence[Cell]
    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    score: Callable[[Cell, int], float | None] = lambda cell, seed: 10.0 + seed
    endings: Mapping[tuple[str, int], Ending] = field(default_factory=dict)
    """Runs that ended otherwise than finished, by label and seed."""
    shape: Shape = Shape()
    metric: str = "final"
    versions: Mapping[str, str] = field(default_factory=lambda: dict(VERSIONS))
    revision: str | None = "1a2b3c4"
    trials: Sequence[Trial] = ()
    tuning: Sequence[tuple[Cell, int]] = ()
    """Cells and seeds of the search."""

    def make(self) -> SweepData:
        """Write all runs."""
        rng = np.random.default_rng(0)
        wanted = [(cell, seed, "test") for cell in self.cells for seed in self.seeds]
        wanted += [(cell, seed, "tuning") for cell, seed in self.tuning]
        runs = [self._run(number, *each, rng) for number, each in enumerate(wanted)]
        return SweepData(
            self.directory.name,
            self.directory,
            self.metric,
            runs,
            list(self.trials),
            "16 random settings, scored on seeds 100 and 101" if self.trials else "",
            [f"tremble sweep {self.directory.name}.toml"],
        )

    def _run(self, number: int, cell: Cell, seed: int, phase: str, rng) -> SweepRun:
        folder = f"cell-{self._folder(cell)}"
        directory = self.directory / "runs" / folder / f"seed-{seed}"
        ending = self.endings.get((cell.label, seed), Ending("finished"))
        if ending.state in ("waiting", "running"):
            if ending.state == "running":
                directory.mkdir(parents=True, exist_ok=True)
            return SweepRun(cell, seed, directory, phase, None, ending.state == "running")
        make_run(directory, cell, seed, self.score(cell, seed) if ending.state in RESULTS else 0.0, self.shape, rng)
        outcome = Outcome(
            ending.state,
            ending.cause,
            cell.steps or self.shape.steps,
            60.0 + number % 7,
            55.0 + number % 5,
            "host",
            "worker-1",
            dict(self.versions),
            self.revision,
            1,
        )
        outcome_file(directory).write_text(as_text(asdict(outcome)))
        return SweepRun(cell, seed, directory, phase, outcome)

    def _folder(self, cell: Cell) -> str:
        if not hasattr(self, "_numbers"):
            self._numbers: dict[str, int] = {}
        return str(self._numbers.setdefault(cell.label, len(self._numbers)))


def cells_of(agents: Sequence[str], envs: Sequence[str], **options) -> list[Cell]:
    """A cell for each agent on each environment, labelled as sweeps do."""
    return [Cell(f"{agent} | {env}", agent, env, **options) for env in envs for agent in agents]


def drawn_scores(spread: float = 1.0, gap: float = 2.0, seed: int = 0) -> Callable[[Cell, int], float]:
    """Scores around a level of the agent and of the environment, and of the seed, which agents share."""
    levels: dict[str, int] = {}

    def score(cell: Cell, run_seed: int) -> float:
        agent = levels.setdefault(json.dumps([cell.agent, cell.agent_options], sort_keys=True), len(levels))
        env = sum(map(ord, cell.env)) % 17
        shared = np.random.default_rng([seed, env, run_seed]).normal()
        own = np.random.default_rng([seed, env, run_seed, agent + 1]).normal()
        return 20.0 + 5 * env + gap * agent + spread * (shared + own)

    return score
