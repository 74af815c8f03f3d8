"""Runs that differ in their seed only, as one curve: the mean over seeds with an interval.

Seeds may have been evaluated at different steps, and some may still be training. The mean is taken at all steps at
which one of them was evaluated, between the latest first and the earliest last of them: every point is a mean over all
seeds, interpolated linearly where a seed was not evaluated at that very step, and never extrapolated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tremble.report.figures import name_of
from tremble.report.run_curves import Curve, RunCurve
from tremble.report.statistics import Interval, mean_band, mean_interval

MOST_POINTS = 500
"""Points of a mean: with more steps than that (training episodes), it is taken at evenly spaced ones."""
NAMED = 3
"""Settings that a name mentions, if they tell groups apart."""


@dataclass(frozen=True)
class Band:
    """A mean over seeds and its 95 % interval at each of some steps; infinite for a single seed."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Group:
    """Runs of one agent with the same settings on the same environment, one for each seed."""

    panel: str
    """The environment, and what tells it from others of its name."""
    name: str
    """The agent, and what tells it from others of its name in the panel."""
    runs: list[RunCurve]

    @property
    def evaluated(self) -> bool:
        """Whether the curve is of evaluations; if no run has any, it is of training episodes."""
        return any(run.evaluations for run in self.runs)

    def curves(self) -> list[Curve]:
        """The curve of each seed that has one yet."""
        found = [run.evaluated() if self.evaluated else run.trained() for run in self.runs]
        return [curve for curve in found if len(curve[0])]

    @cached_property
    def _common(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps ``[points]`` and values ``[seeds, points]`` over the range that all seeds cover."""
        curves = self.curves()
        if not curves:
            return np.zeros(0), np.zeros((0, 0))
        low, high = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
        grid = np.unique(np.concatenate([steps for steps, _ in curves]))
        grid = grid[(low <= grid) & (grid <= high)]
        if len(grid) > MOST_POINTS:
            grid = np.linspace(low, high, MOST_POINTS)
        return grid, np.stack([np.interp(grid, *curve) for curve in curves])

    @cached_property
    def band(self) -> Band:
        """Mean and interval over seeds; no points if there is no step that all of them have reached."""
        grid, values = self._common
        return Band(grid, *(mean_band(values) if len(grid) else (grid, grid, grid)))

    def final(self) -> tuple[float, Interval] | None:
        """The last step that all seeds have reached, and the mean over seeds there; None if there is none yet."""
        grid, values = self._common
        return (float(grid[-1]), mean_interval(values[:, -1])) if len(grid) else None


def group_runs(curves: Sequence[RunCurve]) -> list[Group]:
    """Runs by panel (environment and its settings), and in each by agent and its settings, in order of appearance.

    Of two runs with equal settings and seed, which are the same run twice, the longer one counts: a mean over seeds
    takes them for independent.
    """
    panels: dict[str, list[RunCurve]] = {}
    for curve in curves:
        panels.setdefault(_key(curve.spec["env"], curve.env_settings), []).append(curve)
    titles = _titles([here[0] for here in panels.values()])
    groups = []
    for title, here in zip(titles, panels.values(), strict=True):
        found: dict[str, dict[int, RunCurve]] = {}
        for curve in here:
            seeds = found.setdefault(_key(curve.spec["agent"], curve.agent_settings), {})
            known = seeds.get(curve.spec["seed"])
            if known is None or known.steps < curve.steps:
                seeds[curve.spec["seed"]] = curve
        runs = [[seeds[seed] for seed in sorted(seeds)] for seeds in found.values()]
        named = [Group(title, name, each) for name, each in zip(_names(runs), runs, strict=True)]
        agents = list(dict.fromkeys(group.runs[0].spec["agent"] for group in named))
        groups += sorted(named, key=lambda group: (agents.index(group.runs[0].spec["agent"]), by_numbers(group.name)))
    return groups


def by_numbers(name: str) -> list[str | float]:
    """A key by which ``delta_0=50`` comes before ``delta_0=500`` and after ``delta_0=5``."""
    return [float(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", name))]


def _key(name: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([name, settings], sort_keys=True)


def _titles(firsts: Sequence[RunCurve]) -> list[str]:
    """A title for each panel: Atari's names its protocol, others what tells them from panels of the same name."""
    titles = []
    for run in firsts:
        env = run.spec["env"]
        alike = [other.env_settings for other in firsts if other.spec["env"] == env]
        shown = dict.fromkeys([*(["protocol"] if env.startswith("atari/") else []), *differing(alike)])
        titles.append(called(env, run.env_settings, list(shown)))
    return titles


def _names(groups: Sequence[Sequence[RunCurve]]) -> list[str]:
    """A name for each group of a panel: the agent, with what differs where several have the same agent.

    That is what was given by name, and the table of hyperparameters; where these do not tell them apart (an agent given
    as an object, a version with other defaults), whatever differs.
    """
    names = [name_of(runs[0].spec["agent"]) for runs in groups]
    for agent in dict.fromkeys(names):
        places = [i for i, name in enumerate(names) if name == agent]
        if len(places) == 1:
            continue
        alike = [groups[i][0] for i in places]
        tables = [{"hyperparameters": run.spec["hyperparameters"] or "default"} for run in alike]
        settings = [run.agent_settings | table for run, table in zip(alike, tables, strict=True)]
        different = differing(settings)
        given = {"hyperparameters", "n_envs", *(option for run in alike for option in run.spec["agent_options"])}
        asked = [key for key in different if key in given or key.rpartition(".")[2] in given]
        for keys in (asked, different[:NAMED], different):
            found = [called(agent, each, keys) for each in settings]
            if len(set(found)) == len(found):
                break
        for place, name in zip(places, found, strict=True):
            names[place] = name
    return names


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of settings that are not the same in all."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({_key(name, {"": each.get(name)}) for each in settings}) > 1]


def called(name: str, settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """``pqr (delta_0=50, n_step=3)``: settings by the last part of their names, unless two have the same."""
    last = [key.rpartition(".")[2] for key in keys]
    parts = [
        f"{short if last.count(short) == 1 else key}={_shown(settings[key])}"
        for key, short in zip(keys, last, strict=True)
        if key in settings
    ]
    return f"{name} ({', '.join(parts)})" if parts else name


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
