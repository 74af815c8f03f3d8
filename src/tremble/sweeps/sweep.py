"""A sweep as data: agents, environments, settings, seeds, and how good settings are searched for.

    sweep = tremble.Sweep(agents=["pqr", "qrdqn"], envs=["CartPole-v1"], steps=50_000, seeds=5)
    sweep = tremble.read_sweep("sweep.toml")      # the same fields, written as TOML

A *cell* is one setting of one agent on one environment. Every cell is trained with every seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, get_type_hints

from tremble.envs.registry import benchmark_of, is_jax_env, make_jax_env
from tremble.presets import PARTS
from tremble.settings import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE,
    SettingsError,
    check_ranges,
    convert,
    convert_whole_numbers,
    describe,
    full_name,
    nearest,
    reference,
)
from tremble.sweep_records import Cell
from tremble.training.spec import RunSpec, in_words

TUNING_SEEDS = 10_000
"""The first seed of a search where only the number of its seeds is given."""
EVALUATE_EVERY = 5_000
"""Steps between evaluations, unless the sweep says otherwise. It does not follow from the length, so that a sweep that
is made longer stays the same sweep."""
FINAL_EPISODES = 100
"""Episodes of the evaluation after training, unless the sweep says otherwise."""
RUN_OPTIONS = ("n_envs", "parallel", "record_every", "evaluate_every", "evaluate_episodes", "evaluate_steps")
"""Fields of `RunSpec` that a sweep sets for all runs, and a cell for its own."""
COMPLETED = (*RUN_OPTIONS, "final_episodes")
"""Options that the runs of every complete cell have."""
SHORTHANDS: dict[str, Any] = {
    **{name: () for name in ("agents", "envs", "list")},
    **{name: {} for name in ("settings", "grid", "env_options")},
    "hyperparameters": None,
}
"""Fields of a sweep that stand for cells, and what they are where the cells are written out."""


@dataclass(frozen=True)
class Search:
    """Settings are tried on seeds of their own; the best one of each cell is then trained with the test seeds."""

    space: Mapping[str, Any]
    """What to try, by setting: a list of values, or ``{"low": 1e-5, "high": 1e-2, "log": True}`` (``"whole": True``
    for whole numbers)."""
    method: Literal["grid", "random", "optuna"] = "random"
    """Every combination, independent draws, or Optuna's sampler, which learns from finished trials."""
    trials: Annotated[int, COUNT] = 20
    """Settings to try for each cell; a grid tries all."""
    seeds: int | Sequence[int] = 3
    """Tuning seeds: how many (10000, 10001, ...), or a list. They must not be test seeds."""
    steps: int | None = None
    """Length of tuning runs; None is that of the sweep."""
    seed: Annotated[int, NON_NEGATIVE] = 0
    """Of the draws."""
    at_once: Annotated[int, COUNT] = 4
    """Trials under way at a time in each cell, with Optuna: more keep more workers busy, fewer let it learn more."""
    test: bool = True
    """Whether the winner is trained again with the test seeds."""
    fitting: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By label of the cell, the settings of the space that its agent has; found out if it is not given."""

    def __post_init__(self) -> None:
        """Validate the space."""
        check_ranges(self)
        if not self.space:
            raise SettingsError("search: give a space, for example space.learning_rate = {low = 1e-5, high = 1e-3}")
        for name, domain in self.space.items():
            check_domain(name, domain, self.method)
        if unknown := sorted({name for names in self.fitting.values() for name in names} - self.space.keys()):
            raise SettingsError(f"search: fitting names {unknown[0]!r}, which the space does not have")
        if self.steps is not None and self.steps < 1:
            raise SettingsError(f"search: steps must be at least 1, got {self.steps}")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The tuning seeds."""
        return as_seeds(self.seeds, TUNING_SEEDS, "search: seeds")


@dataclass(frozen=True)
class Sweep:
    """Agents x environments x settings x seeds. Field by field what a sweep file may hold."""

    agents: Sequence[str] = ()
    envs: Sequence[str] = ()
    """As for `tremble.train`: names, Gymnasium ids, ``module:Class``."""
    steps: Annotated[int, COUNT] = 50_000
    seeds: int | Sequence[int] = 5
    """How many (0, 1, ...), or a list."""
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the agents in all runs; those that only some of the agents have are set for these."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Settings with several values each: every combination is a cell."""
    list: Sequence[Mapping[str, Any]] = ()
    """Combinations of settings, each of them a cell."""
    cells: Sequence[Cell] = ()
    """Further cells, written out."""
    search: Search | None = None
    hyperparameters: str | None = None
    env_options: Mapping[str, Any] = field(default_factory=dict)
    n_envs: Annotated[int, COUNT] = 1
    parallel: bool = False
    record_every: Annotated[int, COUNT] = 500
    evaluate_every: int | None = None
    """Steps between evaluations (default: 5,000; 250,000 on Atari; none for environments written in JAX). Where all
    steps are logged (N-Chain, Deep Sea) there are none, unless a cell's ``run_options`` ask for them."""
    evaluate_episodes: Annotated[int, COUNT] = 10
    evaluate_steps: Annotated[int, NON_NEGATIVE] = 0
    final_episodes: int | None = None
    """Episodes after training, on seeds of their own (default: 100; none on Atari and for those written in JAX)."""
    metric: str = "auto"
    """What a run is scored by: final, best, evaluations, best_evaluation, training, or a column of the metrics."""
    callback: str | None = None
    """``module:function``, called with every row: own metrics, early stop."""
    track: Sequence[str] = ()
    """Where else metrics go: tensorboard, wandb, mlflow, trackio."""
    timeout_minutes: Annotated[float, POSITIVE] = 60.0
    """A run that makes no step for so long is ended, and reported as timed out."""
    checkpoint_every: int | None = None

    def __post_init__(self) -> None:
        """Validate what can be validated without making anything."""
        convert_whole_numbers(self)
        check_ranges(self)
        if bool(self.agents) != bool(self.envs):
            raise SettingsError("a sweep with agents needs envs, and the other way round")
        if not self.cells and not self.agents:
            raise SettingsError("a sweep needs agents and envs, or cells")
        for label, values in self.grid.items():
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise SettingsError(f"grid: {label} needs a list of values, got {values!r}")
        seeds = set(self.all_seeds)
        if self.search is not None and (twice := seeds.intersection(self.search.all_seeds)):
            raise SettingsError(
                f"seed {min(twice)} is both a tuning seed and a test seed: a winner is then judged by the seeds that "
                "chose it"
            )
        labels = [cell.label for cell in self.all_cells()]
        if twice_named := [label for label in labels if labels.count(label) > 1]:
            raise SettingsError(f"two cells have the label {twice_named[0]!r}: labels must differ")

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The test seeds."""
        return as_seeds(self.seeds, 0, "seeds")

    def all_cells(self) -> tuple[Cell, ...]:
        """Every cell, equal ones once: agents x environments x combinations, then those written out."""
        found = [
            self._cell(agent, env, combination)
            for env in self.envs
            for agent in self.agents
            for combination in self._combinations()
        ]
        unique = {json.dumps(dataclasses.asdict(cell), sort_keys=True, default=repr): cell for cell in found}
        return (*unique.values(), *(self._completed(cell) for cell in self.cells))

    def _combinations(self) -> Iterator[dict[str, Any]]:
        """Settings given by grid and list; one empty combination where there are none."""
        for values in itertools.product(*self.grid.values()):
            for listed in self.list or ({},):
                yield dict(zip(self.grid, values, strict=True)) | dict(listed)

    def _cell(self, agent: str, env: str, combination: Mapping[str, Any]) -> Cell:
        settings = self._fitting(agent, env, dict(self.settings) | dict(combination))
        varied = {name: value for name, value in settings.items() if name in combination}
        label = f"{called(agent, varied)} | {env}"
        return self._completed(Cell(label, agent, env, settings, dict(self.env_options), self.hyperparameters))

    def _fitting(self, agent: str, env: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the settings that the agent has; an error about one that none of the agents has."""
        parts = {name: value for name, value in settings.items() if name in PARTS}

        def has(agent: str, name: str) -> bool:
            known = known_settings(agent, env, self.hyperparameters, parts)
            return name in known or any(path.endswith(f".{name}") for path in known)

        fitting = dict(parts)
        for name, value in settings.items():
            if has(agent, name):
                fitting[name] = value
            elif name not in parts and not any(has(other, name) for other in self.agents):
                full_name(name, known_settings(agent, env, self.hyperparameters, parts))  # raises, with the nearest
        return {name: fitting[name] for name in settings if name in fitting}

    def _completed(self, cell: Cell) -> Cell:
        """The cell with the options of its runs that the sweep gives, or that follow from its environment."""
        given = checked_run_options(cell)
        if set(COMPLETED) <= given.keys():
            return dataclasses.replace(cell, run_options=given)
        inside, atari = is_jax_env(cell.env), benchmark_of(cell.env) is not None
        usual = {name: getattr(self, name) for name in RUN_OPTIONS}
        if self.evaluate_every is None:
            usual["evaluate_every"] = 0 if inside else 250_000 if atari else EVALUATE_EVERY
        episodes = self.final_episodes
        usual["final_episodes"] = (0 if inside or atari else FINAL_EPISODES) if episodes is None else episodes
        if inside and make_jax_env(cell.env, cell.env_options).observation_table is not None:
            usual |= {"evaluate_every": 0, "final_episodes": 0}  # every step is logged, and episodes may never end
        return dataclasses.replace(cell, run_options=usual | given)


def checked_run_options(cell: Cell) -> dict[str, Any]:
    """The options that a cell gives its runs, whole numbers as such; an error about those that are none."""
    hints, usual = _run_hints(), {field.name: field.default for field in dataclasses.fields(RunSpec)}
    known = (*COMPLETED, "evaluate_env")
    for name in cell.run_options:
        if name not in known:
            raise SettingsError(f"{cell.label}: runs have no option {name!r}; {nearest(str(name), known)}")
    return {name: convert(value, hints[name], usual[name], name) for name, value in cell.run_options.items()}


@lru_cache(maxsize=1)
def _run_hints() -> dict[str, Any]:
    return get_type_hints(RunSpec)


def known_settings(agent: str, env: str, hyperparameters: str | None, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of an agent with these parts; an agent that cannot have them is taken without."""
    return _known_settings(agent, env, hyperparameters, json.dumps(in_words(parts), sort_keys=True, default=reference))


@lru_cache(maxsize=1024)
def _known_settings(agent: str, env: str, hyperparameters: str | None, parts: str) -> dict[str, Any]:
    try:
        built = RunSpec(agent, env, 1, hyperparameters=hyperparameters, agent_options=json.loads(parts)).build_agent()
    except SettingsError:
        built = RunSpec(agent, env, 1, hyperparameters=hyperparameters).build_agent()
    return describe(built)


def as_seeds(given: int | Sequence[int], first: int, name: str) -> tuple[int, ...]:
    """The seeds that a number of seeds or a list stands for."""
    if isinstance(given, bool) or not isinstance(given, int | Sequence) or isinstance(given, str):
        raise SettingsError(f"{name} must be a number of seeds or a list of them, got {given!r}")
    seeds = tuple(range(first, first + given)) if isinstance(given, int) else tuple(given)
    if not seeds or any(type(seed) is not int or not 0 <= seed < 2**31 for seed in seeds):
        raise SettingsError(f"{name} must be at least one whole number that is not negative, got {given!r}")
    if len(set(seeds)) < len(seeds):
        raise SettingsError(f"{name} holds a seed twice")
    return seeds


DOMAIN = {"low", "high", "log", "whole"}


def check_domain(name: str, domain: Any, method: str) -> None:
    """Raise unless the values of a search for one setting are a list, or a range with two ends."""
    if isinstance(domain, Mapping):
        if unknown := sorted(domain.keys() - DOMAIN):
            raise SettingsError(f"search: {name} has no {unknown[0]!r}; {nearest(unknown[0], DOMAIN)}")
        low, high = domain.get("low"), domain.get("high")
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
        if not numbers or not low < high or (domain.get("log") and low <= 0):  # type: ignore[operator]
            raise SettingsError(f"search: {name} needs low < high (above 0 with log), got {dict(domain)!r}")
        if method == "grid":
            raise SettingsError(f"search: a grid needs the values of {name} as a list, got a range")
    elif isinstance(domain, str) or not isinstance(domain, Sequence) or not domain:
        raise SettingsError(f"search: {name} needs a list of values or a range with low and high, got {domain!r}")


def called(agent: str, settings: Mapping[str, Any]) -> str:
    """``pqr (delta_0=50)``: an agent and what is special about it."""
    words = ", ".join(f"{name}={_short(value)}" for name, value in settings.items())
    return f"{agent} ({words})" if words else agent


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace(" ", "")


def spec_of(cell: Cell, seed: int, steps: int) -> RunSpec:
    """The run of a cell with one seed."""
    return RunSpec(
        cell.agent,
        cell.env,
        cell.steps or steps,
        seed,
        hyperparameters=cell.hyperparameters,
        agent_options=dict(cell.agent_options),
        env_options=dict(cell.env_options),
        **cell.run_options,
    )


def folder_name(spec: RunSpec, callback: str | None = None) -> str:
    """The folder of a cell: agent, environment, and a digest of everything that is given but length and seed."""
    usual = {f.name: f.default for f in dataclasses.fields(RunSpec) if f.default is not dataclasses.MISSING}
    fields = spec.as_json()
    given = {name: value for name, value in fields.items() if usual.get(name, ()) != value}
    given = {name: value for name, value in given.items() if value != {} and name not in ("steps", "seed")}
    called_so = called(spec.agent, fields["agent_options"])
    text = json.dumps([given, callback] if callback else [given], sort_keys=True)
    words, env = (re.sub(r"[^\w.=+]+", "-", text, flags=re.ASCII).strip("-.") for text in (called_so, spec.env))
    return f"{words[:60]}-{env[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
