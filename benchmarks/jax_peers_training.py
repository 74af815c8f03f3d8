"""What tremble trains beside rejax and sbx, and the settings that all of them are given.

Their parts are `rejax_peer.py` and `sbx_peer.py`, which run in an environment of their own.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gym_training import START, settings
from benchmarks.stepping import inside_xla
from benchmarks.workers import Contender

MEMORY = 100_000
COLUMN: dict[str, Any] = {
    "batch_size": 64,
    "widths": (64, 64),
    "learning_rate": 5e-4,
    "gamma": 0.99,
    "update_interval": 1,
    "updates_per_round": 1,
    "target_update_interval": 100,
    "start_steps": START,
    "epsilon": 0.01,
}
"""An update every step. Exploration is at its final rate from the start."""
ZOO: dict[str, Any] = COLUMN | {
    "widths": (256, 256),
    "learning_rate": 2.3e-3,
    "update_interval": 256,
    "updates_per_round": 128,
    "target_update_interval": 10,
    "epsilon": 0.04,
}
"""What rl-baselines3-zoo publishes for DQN on CartPole: 128 updates after every 256 steps."""
LEVELS = {"n_online": 64, "n_target": 64, "n_choose": 32, "n_cosines": 64, "n_hidden": 64}
"""IQN's, as rejax has them."""


def our_changes(agent: str, column: dict[str, Any]) -> dict[str, Any]:
    """A column as changes of a table of hyperparameters."""
    epsilon, updates = column["epsilon"], column["updates_per_round"]
    same = {name: value for name, value in column.items() if name not in ("epsilon", "updates_per_round")}
    further = {"updates_per_round": updates} | (LEVELS if agent == "iqn" else {})
    return same | {"memory_size": MEMORY, "epsilon_start": epsilon, "epsilon_end": epsilon, "settings": further}


def tremble_inside(agent: str, env: str, steps: int) -> Contender:
    """CartPole, or MinAtar's Breakout as gymnax has it and its pictures as vectors, inside XLA."""
    from benchmarks.jax_cartpole import JaxCartPole
    from tremble.hyperparameters import register_hyperparameters
    from tremble.presets import make
    from tremble.settings import override
    from tremble.training.xla_loop import iterate
    from tremble.worlds.minatar import minatar

    register_hyperparameters("benchmark", settings("minatar", **our_changes(agent, COLUMN)))
    breakout = override(minatar("breakout"), {"actions": "minimal", "sticky": 0.0})
    world = {"cartpole": JaxCartPole(), "breakout": breakout}[env]
    moments = iterate(make(agent, "benchmark", network="mlp"), world, 0, 10**6, 10**6, (steps,))
    inside_xla(moments, START + steps)
    inside_xla(moments, steps)
    return Contender(lambda _: inside_xla(moments, steps))
