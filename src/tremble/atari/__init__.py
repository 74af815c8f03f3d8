"""Atari: the emulator under published protocols, and the agents that were trained under them.

Importing this package registers names; the emulator and the tables of hyperparameters are imported on first use.
"""

from __future__ import annotations

from typing import Any

from tremble.atari.games import GAMES, NAMESPACE, id_of, is_atari
from tremble.atari.protocols import find_protocol
from tremble.atari.published_agents import published_agents
from tremble.envs.registry import Benchmark, register_benchmark, register_gymnasium_env
from tremble.hyperparameters import register_hyperparameters


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


def _is_atari(env: str) -> bool:
    return is_atari(env) or env.startswith("ALE/") or "noframeskip" in env.lower()


def _register() -> None:
    for rom in GAMES:
        register_gymnasium_env(
            id_of(rom),
            "tremble.atari.emulator:AtariGame",
            kwargs={"game": rom},
            order_enforce=False,
            disable_env_checker=True,
        )
    tables = "tremble.atari.hyperparameters"
    register_hyperparameters("atari", f"{tables}:ATARI", _is_atari, "the paper's, with the values of the protocol")
    register_hyperparameters(
        "atari_small", f"{tables}:ATARI_SMALL", about="ours, for a processor without an accelerator"
    )
    register_benchmark(Benchmark(NAMESPACE, "paper", {"training": False}, evaluation_rules, open_vector))


_register()
