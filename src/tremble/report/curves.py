"""Published learning curves, and those of one's own runs, in one tidy table.

Columns: ``source, protocol, returns, agent, game, seed, iteration, frame, value``. ``frame`` is the number of
emulator frames since the start of training at which the value was complete; ``returns`` is the kind of return,
``evaluation`` or ``training``.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tremble.report.references import game_name
from tremble.report.run_reader import read_run
from tremble.settings import SettingsError

COLUMNS = ("source", "protocol", "returns", "agent", "game", "seed", "iteration", "frame", "value")
FRAMES_PER_STEP = 4
"""On Atari, under every published protocol."""
FRAMES_PER_ITERATION = 250_000 * FRAMES_PER_STEP
"""In both code bases."""
DOPAMINE_AGENTS = {
    "DQN": "dqn",
    "C51": "c51",
    "Rainbow": "rainbow",
    "IQN": "iqn",
    "Quantile (JAX)": "qrdqn",
    "DQN (Adam + MSE in JAX)": "dqn_adam",
}
"""From Dopamine's names to ours; other names are kept."""
ZOO_COLUMNS = (
    "environment_name",
    "seed",
    "iteration",
    "frame",
    "eval_episode_return",
    "train_episode_return",
    "normalized_return",
)


def load_dopamine(path: Path | str) -> pd.DataFrame:
    """Dopamine's ``baselines/atari/data/GAME.json``: returns of *training*, one value for each iteration of each run.

    The file is a list of {"Iteration", "Value", "Agent"} in the order of runs; a run has no number of its own, a new
    one starts where Iteration does not go on. The game is the file's name.
    """
    path = Path(path)
    game = game_name(path.stem.removesuffix("_CNN").removesuffix("_Impala"))
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise SettingsError(f"{path} is not one of Dopamine's files of curves: it should be a list of values")
    rows: list[tuple[Any, ...]] = []
    seeds: dict[str, int] = {}
    previous: tuple[str | None, int] = (None, -1)
    for number, entry in enumerate(entries):
        iteration, value, agent = _dopamine_entry(entry, path, number)
        if agent != previous[0] or iteration <= previous[1]:
            if iteration != 0:
                raise SettingsError(
                    f"{path}, entry {number}: a run of {agent} starts at iteration {iteration}, not at 0"
                )
            seeds[agent] = seeds.get(agent, -1) + 1
        elif iteration != previous[1] + 1:
            raise SettingsError(f"{path}, entry {number}: iteration {iteration} follows {previous[1]}")
        previous = (agent, iteration)
        name = DOPAMINE_AGENTS.get(agent, agent)
        frame = (iteration + 1) * FRAMES_PER_ITERATION
        rows.append(("dopamine", "dopamine", "training", name, game, seeds[agent], iteration, frame, value))
    return pd.DataFrame(rows, columns=COLUMNS)


def _dopamine_entry(entry: Any, path: Path, number: int) -> tuple[int, float, str]:
    place = f"{path}, entry {number}"
    if not isinstance(entry, dict) or not {"Iteration", "Value", "Agent"} <= set(entry):
        raise SettingsError(f"{place}: expected an Iteration, a Value and an Agent, got {str(entry)[:80]!r}")
    iteration, value, agent = entry["Iteration"], entry["Value"], entry["Agent"]
    if isinstance(iteration, bool) or not isinstance(iteration, int) or iteration < 0:
        raise SettingsError(f"{place}: the Iteration should be a whole number, got {iteration!r}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SettingsError(f"{place}: the Value should be a number, got {value!r}")
    if not isinstance(agent, str) or not agent:
        raise SettingsError(f"{place}: the Agent should be a name, got {agent!r}")
    return iteration, float(value), agent


def load_dqn_zoo(path: Path | str) -> pd.DataFrame:
    """One of DQN Zoo's result files, a CSV for each agent: returns of evaluation *and* of training, in separate rows.

    Iteration 0 is an evaluation before any training, so its training return is empty. The agent is the file's name.
    """
    path = Path(path)
    rows: list[tuple[Any, ...]] = []
    seen: set[tuple[str, int, int]] = set()
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [column for column in ZOO_COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise SettingsError(f"{path} is not one of DQN Zoo's files of results: it lacks {', '.join(missing)}")
            for line in reader:
                rows += _zoo_line(line, f"{path}, line {reader.line_num}", path.stem, seen)
    except (UnicodeDecodeError, csv.Error) as error:
        raise SettingsError(f"{path} is not a CSV file: {error}") from error
    if not rows:
        raise SettingsError(f"{path} has no results")
    return pd.DataFrame(rows, columns=COLUMNS)


def _zoo_line(line: dict[str, Any], place: str, agent: str, seen: set[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    game = game_name(str(line["environment_name"]))
    try:
        seed, iteration, frame = (int(float(line[name])) for name in ("seed", "iteration", "frame"))
        values = {
            "evaluation": float(line["eval_episode_return"]),
            "training": float(line["train_episode_return"] or "nan"),
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"{place}: {error}") from error
    if frame != iteration * FRAMES_PER_ITERATION:
        raise SettingsError(f"{place}: iteration {iteration} should end at frame {iteration:,}M, not {frame:,}")
    if (game, seed, iteration) in seen:
        raise SettingsError(f"{place}: iteration {iteration} of {game}, seed {seed}, is there twice")
    seen.add((game, seed, iteration))
    if not math.isfinite(values["evaluation"]):
        raise SettingsError(f"{place}: the evaluation return is not a number")
    return [
        ("dqn_zoo", "dqn_zoo", kind, agent, game, seed, iteration, frame, value)
        for kind, value in values.items()
        if math.isfinite(value)
    ]


def load_run(directory: Path | str, protocol: str | None = None) -> pd.DataFrame:
    """The evaluations of a run of one's own, in the columns of published curves.

    Runs on ``atari/GAME`` record their protocol; for other environments it has to be given.
    """
    run = read_run(directory)
    if not run.evaluations:
        raise SettingsError(f"{directory} has no evaluations: train with --evaluate-every")
    env = run.spec["env"]
    if protocol is None:
        if not env.startswith("atari/"):
            raise SettingsError(f"under which protocol was {env} played? Give protocol=, for example 'paper'")
        protocol = protocol_of(run.spec)
    agent, seed, game = run.spec["agent"], run.spec["seed"], game_name(env)
    rows = []
    for iteration, entry in enumerate(run.evaluations):
        frame = int(entry.get("frames", entry["step"] * FRAMES_PER_STEP))
        rows.append(("tremble", protocol, "evaluation", agent, game, seed, iteration, frame, entry["mean"]))
    return pd.DataFrame(rows, columns=COLUMNS)


def protocol_of(spec: Mapping[str, Any]) -> str:
    """The protocol of a run on Atari: the paper's where none was given."""
    return str(spec["env_options"].get("protocol", "paper"))
