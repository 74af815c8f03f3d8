"""Hyperparameters of agents as tables, one for each domain, and the registry of their names.

A table holds the values of the paper's table of hyperparameters for one domain, and what that table leaves out. Tables
of environments that are built with the library (N-Chain, MinAtar, Atari) are registered where those environments are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tremble.envs.registry import load_plugins
from tremble.settings import SettingsError, import_named, nearest

if TYPE_CHECKING:
    from tremble.core import TimeOrigin
    from tremble.networks import NetworkSpec


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of one domain, as in the paper's table, and what that table leaves out.

    Adam's epsilon (0.01 / batch size) and the network are not in the paper's table; they are those of the code bases
    whose settings it repeats. Where there are convolutions, ``widths`` are the dense layers behind them.

    Defaults are the values that the paper's three domains share; on Atari alone its ``update_interval`` is 4.
    """

    batch_size: int
    n_quantiles: int
    memory_size: int
    learning_rate: float
    gamma: float
    target_update_interval: int
    start_steps: int
    epsilon_decay_steps: int
    delta_0: float
    widths: tuple[int, ...]
    kappa: float = 1.0
    beta: float = 0.05
    c: float = 50.0
    epsilon_start: float = 1.0
    epsilon_end: float = 0.01
    update_interval: int = 1
    epsilon_origin: TimeOrigin = "zero"
    """Where epsilon begins to fall."""
    support: tuple[float, float] = (-10.0, 10.0)
    """What a categorical representation spreads its atoms over; it should cover the returns."""
    network: NetworkSpec | None = None
    """The torso in front of the head, with layers of ``widths``; None goes by the observation (`AutoSpec`)."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the agent, by name."""
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that single agents were published with, or need here, where they differ from the table."""
    sources: dict[str, str] = field(default_factory=dict)
    """Where the settings in ``published`` were read, by agent."""
    with_protocol: Callable[[str], Hyperparameters] | None = None
    """The table under a named protocol; None where there are no protocols."""


_TABLES: dict[str, str | Hyperparameters] = {}
_ABOUT: dict[str, str] = {}
_DEFAULTS: list[tuple[Callable[[str], bool], str]] = []


def register_hyperparameters(
    name: str, table: str | Hyperparameters, default_for: Callable[[str], bool] | None = None, about: str = ""
) -> None:
    """Register a table, or its ``module:name``; ``default_for`` says for which environments it is the default.

    ``about`` is a line for `tremble list`.
    """
    _TABLES[name], _ABOUT[name] = table, about or "of an installed package"
    if default_for is not None:
        _DEFAULTS.append((default_for, name))


def hyperparameter_tables() -> dict[str, Hyperparameters]:
    """All tables by name."""
    load_plugins()
    return {name: import_named(table) if isinstance(table, str) else table for name, table in _TABLES.items()}


def about_hyperparameters() -> dict[str, str]:
    """A line about each table."""
    load_plugins()
    return dict(_ABOUT)


def find_hyperparameters(name: str, protocol: str | None = None) -> Hyperparameters:
    """A table by name, under a protocol where one is named."""
    tables = hyperparameter_tables()
    if name not in tables:
        raise SettingsError(f"there are no hyperparameters for {name!r}; {nearest(name, tables)}")
    table = tables[name]
    if protocol is None:
        return table
    if table.with_protocol is None:
        raise SettingsError(f"protocols are about Atari; {name!r} has none")
    return table.with_protocol(protocol)


def default_hyperparameters(env: str) -> str:
    """The name of the table that goes with an environment: `control` where none is registered for it."""
    load_plugins()
    return next((name for is_default, name in _DEFAULTS if is_default(env)), "control")


LUNARLANDER = Hyperparameters(
    batch_size=128,
    n_quantiles=170,
    memory_size=100_000,
    learning_rate=1.5e-3,
    gamma=0.99,
    target_update_interval=1,
    start_steps=10_000,
    epsilon_decay_steps=100_000,
    delta_0=5e4,
    widths=(256, 256),
    support=(-400.0, 400.0),
    published={name: {"option_epsilon_decay_steps": 1e5} for name in ("quota", "quota_onpolicy")},
)
"""The paper's, for LunarLander."""

# Not the paper's: what rl-baselines3-zoo publishes for QR-DQN on LunarLander, from which the paper's values come.
# Bursts of 256 updates every 256 steps, so that the target (copied at every step) stays fixed during a burst.
SB3_ZOO = dataclasses.replace(
    LUNARLANDER,
    learning_rate=1.35e-3,  # 1.5e-3 falling to 0 over 100,000 steps, of which 10,000 pass before learning starts
    gamma=0.995,
    update_interval=256,
    target_update_interval=256,
    epsilon_end=0.18,
    epsilon_decay_steps=24_000,
    settings={"updates_per_round": 256, "decay_updates": 90_000},
)

# Ours, for small control problems: learning begins early, and exploration fades within ten thousand steps.
CONTROL = Hyperparameters(
    batch_size=64,
    n_quantiles=32,
    memory_size=50_000,
    learning_rate=5e-4,
    gamma=0.99,
    target_update_interval=1,
    start_steps=500,
    epsilon_end=0.02,
    epsilon_decay_steps=5_000,
    c=5.0,
    delta_0=2e3,
    widths=(64, 64),
    support=(-100.0, 100.0),
    settings={"target_tau": 0.02, "double": True, "layer_norm": True},
)

# The paper's for LunarLander with a learning rate that ends at zero and fewer quantiles. What PQR does not read
# (the rate of epsilon-greedy, the size of DLTV's bonus) is ours.
LUNARLANDER_TUNED = dataclasses.replace(
    LUNARLANDER,
    n_quantiles=32,
    epsilon_end=0.02,
    epsilon_decay_steps=10_000,
    c=5.0,
    settings={"decay_updates": 90_000},
    published={},
)

register_hyperparameters(
    "lunarlander",
    LUNARLANDER,
    lambda env: env.rsplit("/", 1)[-1].lower().startswith("lunarlander"),
    "the paper's, for LunarLander",
)
register_hyperparameters(
    "lunarlander_tuned", LUNARLANDER_TUNED, about="the paper's with a learning rate that decays, and 32 quantiles"
)
register_hyperparameters("sb3_zoo", SB3_ZOO, about="published for QR-DQN on LunarLander; the paper's descend from it")
register_hyperparameters(
    "control", CONTROL, about="ours, for small control problems; the default of other environments"
)
