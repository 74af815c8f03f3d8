"""Atari: the emulator under published protocols, and the agents that were trained under them."""

from __future__ import annotations

from typing import Any

import gymnasium

from tremble.atari import hyperparameters
from tremble.atari.games import GAMES, NAMESPACE, id_of
from tremble.atari.protocols import find_protocol
from tremble.atari.published_agents import published_agents
from tremble.envs.registry import Benchmark, register_benchmark


def evaluation_rules(protocol: str, agent: str) -> dict[str, Any]:
    """How evaluations end and how often they act at random, as the agent was published under the protocol."""
    rules = find_protocol(protocol)
    own = {published.agent: published.evaluate_epsilon for published in published_agents(rules.name)}
    return {"ends": rules.evaluate_ends, "epsilon": own.get(agent, rules.evaluate_epsilon)}


def open_vector(name: str, n_envs: int, options: dict[str, Any]) -> Any:
    """All games in ale-py's own vector, where the options say ``engine=vector``; else None."""
    if options.get("engine") != "vector":
        return None
    from tremble.atari.vector import AtariVector

    return AtariVector(name, n_envs, **{key: value for key, value in options.items() if key != "engine"})


def _register() -> None:
    # Entry points are strings, so the emulator is imported when a game is first made.
    for rom in GAMES:
        gymnasium.register(
            id_of(rom),
            entry_point="tremble.atari.emulator:AtariGame",
            kwargs={"game": rom},
            order_enforce=False,
            disable_env_checker=True,
        )
    hyperparameters.register()
    register_benchmark(Benchmark(NAMESPACE, "paper", {"training": False}, evaluation_rules, open_vector))


_register()
