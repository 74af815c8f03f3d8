"""Studies that train on Atari: their choices, validated, and the runs that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tremble.atari.games import PAPER_GAMES, id_of, rom_of
from tremble.atari.protocols import AtariProtocol, find_protocol
from tremble.presets import PRESETS
from tremble.report.references import game_name
from tremble.settings import SettingsError
from tremble.studies.kit import Options, Study, known_names
from tremble.sweep_records import Cell

ON_POLICY = {"quota_onpolicy": 16}
"""Agents without replay, with the number of parallel environments they were published with."""
QUICK = {"start_steps": 500, "memory_size": 2_000}
QUICK_CAP_FRAMES = 2_000
"""The quick version truncates games after 500 steps; with untrained agents they can last half an hour."""


@dataclass(frozen=True)
class Plan:
    """The validated choices of a study."""

    protocol: AtariProtocol
    games: list[str]
    """Names of the emulator's files."""
    agents: list[str]
    steps: int
    episodes: int
    """Games per evaluation; 0: the protocol's number of steps."""
    memory_size: int
    """0: the protocol's."""
    quick: bool

    @property
    def frames(self) -> int:
        """Frames of a run."""
        return self.steps * self.protocol.frame_skip_max

    @property
    def evaluate_every(self) -> int:
        """Steps between evaluations."""
        return max(1, self.steps // 2) if self.quick else self.protocol.evaluate_every_steps

    def labels(self) -> list[tuple[str, str, str]]:
        """(label of the cell, game, agent), in order; the game as papers spell it."""
        return [(label(game, agent), game_name(game), agent) for game in self.games for agent in self.agents]


def label(game: str, agent: str) -> str:
    """Label of a cell."""
    return f"{game_name(game)} | {agent}"


def plan_of(study: Study, options: Options, games: Sequence[str] = ()) -> Plan:
    """Validate the choices; ``games`` are those of a study that has no choice of games."""
    chosen = study.chosen(options.choices)
    protocol = chosen["protocol"]
    if not isinstance(protocol, str) or "," in protocol:
        raise SettingsError(
            "a study has one protocol, because scores under different protocols cannot be compared. Run one study for each, with another --out"
        )
    rules = find_protocol(protocol)
    asked = tuple(games or chosen["games"])
    roms = PAPER_GAMES if asked == ("all",) else tuple(rom_of(game) for game in asked)
    agents = known_names(chosen["agents"], PRESETS, "agent")
    if chosen["episodes"] < 0 or chosen["memory_size"] < 0:
        raise SettingsError("episodes and memory_size are at least 0, which stands for the protocol's own")
    played = list(dict.fromkeys(roms))
    steps = _steps(study, chosen, options, rules.frame_skip_max)
    if options.quick:
        played, agents = played[:1], list(dict.fromkeys([agents[0], agents[-1]]))
    episodes = 2 if options.quick else chosen["episodes"]
    return Plan(rules, played, agents, steps, episodes, chosen["memory_size"], options.quick)


def _steps(study: Study, chosen: Mapping[str, Any], options: Options, skip: int) -> int:
    """Steps of a run, from `frames` or --steps."""
    if options.quick:
        return options.steps
    by_frames = chosen["frames"] // skip
    if options.steps == study.steps:
        if by_frames < 1000:
            raise SettingsError(f"a run has at least {1000 * skip:,} frames, got {chosen['frames']:,}")
        return by_frames
    if chosen["frames"] not in (study.choices["frames"], options.steps * skip):
        raise SettingsError(
            f"--steps {options.steps:,} and frames={chosen['frames']:,} contradict each other: a step is {skip} frames. "
            "Give one of them"
        )
    return options.steps


def cells_of(plan: Plan) -> list[Cell]:
    """Every agent on every game. Studies with equal settings share their runs."""
    env_options: dict[str, Any] = {"protocol": plan.protocol.name}
    if plan.quick:
        env_options["cap_frames"] = QUICK_CAP_FRAMES
    length = {"evaluate_episodes": plan.episodes} if plan.episodes else {"evaluate_steps": plan.protocol.evaluate_steps}
    run = {"record_every": max(1000, plan.steps // 1000), "evaluate_every": plan.evaluate_every, **length}

    def cell(game: str, agent: str) -> Cell:
        options = agent_options(agent, plan), env_options, None
        own = {"n_envs": ON_POLICY[agent]} if agent in ON_POLICY else {}
        return Cell(label(game, agent), agent, id_of(game), *options, run | {"final_episodes": 100} | own, plan.steps)

    return [cell(game, agent) for game in plan.games for agent in plan.agents]


def agent_options(agent: str, plan: Plan) -> dict[str, Any]:
    """Settings that differ from the protocol's."""
    settings: dict[str, Any] = {}
    if agent not in ON_POLICY:
        settings |= QUICK if plan.quick else {}
        settings |= {"memory_size": plan.memory_size} if plan.memory_size else {}
    return settings | ({"n_quantiles": 16} if plan.quick else {})
