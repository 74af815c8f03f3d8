"""Learning curve of a run directory: returns of evaluations and of training episodes, for any environment."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tremble import escape
from tremble.report import figures
from tremble.report.curves import protocol_of
from tremble.report.run_reader import RunLogs, read_run
from tremble.settings import SettingsError

WINDOW = 20
"""Length of the moving average over training episodes."""


Curve = tuple[np.ndarray, np.ndarray]
"""Steps and returns."""


@dataclass(frozen=True)
class RunCurve:
    """Returns of one run over its steps."""

    spec: dict[str, Any]
    agent_settings: dict[str, Any]
    """Everything that two runs of one group have in common: all settings of the agent, by their full names."""
    env_settings: dict[str, Any]
    """Everything that two runs of one panel have in common besides the name of their environment."""
    steps: int
    """Steps so far."""
    hours: float | None
    """Wall-clock time; None if it was not logged."""
    evaluations: list[tuple[int, list[float]]]
    """(step, returns of the episodes)."""
    episodes: list[tuple[int, float]]
    """(last step, return) of the training episodes."""

    @property
    def name(self) -> str:
        """Agent and seed."""
        return f"{figures.name_of(self.spec['agent'])}, seed {self.spec['seed']}"

    @property
    def means(self) -> np.ndarray:
        """Mean return of each evaluation; NaN where one was not finite, or no game ended in it."""
        return np.array([np.mean(returns) if returns else np.nan for _, returns in self.evaluations], float)

    def evaluated(self) -> Curve:
        """Steps and mean returns of the evaluations that were finite."""
        steps, means = np.array([step for step, _ in self.evaluations], float), self.means
        return steps[np.isfinite(means)], means[np.isfinite(means)]

    def trained(self) -> Curve:
        """Steps and moving averages of the training episodes that were finite: of `WINDOW`, or of all if fewer."""
        ends, gained = np.array(self.episodes, float).reshape(-1, 2).T
        ends, gained = ends[np.isfinite(gained)], gained[np.isfinite(gained)]
        if not len(ends):
            return ends, gained
        window = min(WINDOW, len(ends))
        return ends[window - 1 :], np.convolve(gained, np.full(window, 1 / window), "valid")

    @property
    def command(self) -> str:
        """The command that starts this run; a comment where it was trained with objects in Python."""
        spec = self.spec
        if "from_python" in spec or "custom" in (spec["agent"], spec["env"]):
            return f"# {escape.plain(self.name)}: trained in Python, with an agent or environment given as an object"
        words = ["tremble", "train", spec["agent"]]
        words += ["--env", spec["env"], "--steps", str(spec["steps"]), "--seed", str(spec["seed"])]
        words += ["--hyperparameters", spec["hyperparameters"]] if spec["hyperparameters"] else []
        for option, settings in (("--set", spec["agent_options"]), ("--env-set", spec["env_options"])):
            for name, value in settings.items():
                words += [option, f"{name}={_as_typed(value)}"]
        words += ["--n-envs", str(spec["n_envs"])] if spec["n_envs"] > 1 else []
        words += ["--parallel"] if spec["parallel"] else []
        words += ["--record-every", str(spec["record_every"])] if spec["record_every"] != 500 else []
        words += ["--evaluate-every", str(spec["evaluate_every"])]
        if spec["evaluate_every"]:
            words += ["--evaluate-env", spec["evaluate_env"]] if spec["evaluate_env"] else []
            length = "steps" if spec["evaluate_steps"] else "episodes"
            words += [f"--evaluate-{length}", str(spec[f"evaluate_{length}"])]
        words += ["--final-episodes", str(spec["final_episodes"])] if spec.get("final_episodes") else []
        return shlex.join(escape.plain(word) for word in words)


def load_curve(directory: Path | str) -> RunCurve:
    """Curves of a run, finished or not."""
    run = read_run(directory)
    evaluations = [(row["step"], [_number(x) for x in row["returns"]]) for row in run.evaluations]
    episodes = [(row["step"], _number(row["return"])) for row in run.episodes]
    if not evaluations and not episodes:
        raise SettingsError(f"{escape.plain(directory)} has neither evaluations nor finished episodes to draw")
    steps = int(run.metrics[-1]["step"]) if run.metrics else max(step for step, _ in [*evaluations, *episodes])
    hours = run.timing[-1]["seconds"] / 3600 if run.timing else None
    return RunCurve(run.spec, *_settings(run), steps, hours, evaluations, episodes)


def _settings(run: RunLogs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the agent and of the environment: all of them where the run wrote them, else those it was given."""
    spec, behind = run.spec, run.settings
    agent = behind.get("agent_settings") or {"hyperparameters": spec["hyperparameters"], **spec["agent_options"]}
    kinds = {part: behind[part] for part in ("criterion", "representation", "network", "optimiser") if part in behind}
    env = behind.get("env_settings") or dict(spec["env_options"])
    if spec["env"].startswith("atari/"):
        env = env | {"protocol": protocol_of(spec)}
    if spec["evaluate_env"] is not None:
        env = env | {"evaluate_env": spec["evaluate_env"]}
    return agent | kinds | {"n_envs": spec["n_envs"]}, env


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _as_typed(value: Any) -> str:
    """As it is typed behind --set."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list | dict | bool) else str(value)
