"""Settings that single agents were published with, where a protocol alone does not fix them.

Times are in steps of the agent (DQN Zoo's own files count frames, four to a step).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tremble.settings import SettingsError, nearest


@dataclass(frozen=True, kw_only=True)
class PublishedAgent:
    """One agent as one code base trains it on Atari."""

    protocol: str
    agent: str
    optimiser: Literal["adam", "rmsprop_centred"] = "adam"
    learning_rate: float
    optimiser_epsilon: float
    gradient: Literal["none", "global_norm_10", "td_error_clipped"] = "none"
    """What is done to gradients; a clipped error is the Huber loss at 1."""
    replay_start_steps: int = 50_000
    target_update_steps: int = 10_000
    epsilon_end: float | None = 0.01
    """None: no epsilon-greedy after the random start."""
    evaluate_epsilon: float = 0.001
    n_step: int = 1
    prioritised: bool = False
    head: str
    source: str


_DQN: dict[str, Any] = {"optimiser": "rmsprop_centred", "learning_rate": 2.5e-4, "gradient": "td_error_clipped"}
_ZOO_RMSPROP_EPSILON = 0.01 / 32**2


def _paper(agent: str, epsilon_end: float | None) -> PublishedAgent:
    return PublishedAgent(
        protocol="paper",
        agent=agent,
        learning_rate=5e-5,
        optimiser_epsilon=0.01 / 32,
        epsilon_end=epsilon_end,
        head="200 quantiles, kappa 1",
        source="Pitfall of Optimism, table of hyperparameters; Adam's epsilon and the gradient: "
        "toshikwa/fqf-iqn-qrdqn.pytorch (inferred)",
    )


def _zoo(agent: str, folder: str, **settings: Any) -> PublishedAgent:
    source = f"google-deepmind/dqn_zoo: dqn_zoo/{folder}/run_atari.py"
    common = {"protocol": "dqn_zoo", "gradient": "global_norm_10", "source": source}
    return PublishedAgent(agent=agent, **(common | settings))


def _dopamine(agent: str, folder: str, **settings: Any) -> PublishedAgent:
    source = f"google/dopamine: dopamine/{folder}"
    return PublishedAgent(
        protocol="dopamine",
        agent=agent,
        source=source,
        replay_start_steps=20_000,
        target_update_steps=8_000,
        **settings,
    )


PUBLISHED: tuple[PublishedAgent, ...] = (
    _paper("qrdqn", 0.01),
    _paper("dltv", None),
    _paper("pqr", None),
    _zoo(
        "dqn",
        "dqn",
        optimiser_epsilon=_ZOO_RMSPROP_EPSILON,
        epsilon_end=0.1,
        evaluate_epsilon=0.05,
        head="one value",
        **_DQN,
    ),
    _zoo(
        "double_dqn",
        "double_q",
        optimiser_epsilon=_ZOO_RMSPROP_EPSILON,
        target_update_steps=30_000,
        evaluate_epsilon=0.01,
        head="one value, one bias for all actions",
        **_DQN,
    ),
    _zoo(
        "prioritised_dqn",
        "prioritized",
        optimiser_epsilon=_ZOO_RMSPROP_EPSILON / 16,
        target_update_steps=30_000,
        evaluate_epsilon=0.01,
        prioritised=True,
        head="one value, one bias for all actions",
        **(_DQN | {"learning_rate": 6.25e-5}),
    ),
    _zoo("c51", "c51", learning_rate=2.5e-4, optimiser_epsilon=0.01 / 32, head="51 atoms on [-10, 10]"),
    _zoo("qrdqn", "qrdqn", learning_rate=5e-5, optimiser_epsilon=0.01 / 32, head="201 quantiles, kappa 1"),
    _zoo(
        "iqn",
        "iqn",
        learning_rate=5e-5,
        optimiser_epsilon=0.01 / 32,
        gradient="none",
        replay_start_steps=20_000,
        head="64 cosines, 64 levels online, 64 target, 64 to choose",
    ),
    _zoo(
        "rainbow",
        "rainbow",
        learning_rate=6.25e-5,
        optimiser_epsilon=0.005 / 32,
        replay_start_steps=20_000,
        target_update_steps=8_000,
        epsilon_end=None,
        evaluate_epsilon=0.0,
        n_step=3,
        prioritised=True,
        head="51 atoms on [-10, 10], dueling, noisy",
    ),
    _dopamine("dqn", "tf/agents/dqn/configs (the curves called DQN)", optimiser_epsilon=1e-5, head="one value", **_DQN),
    _dopamine(
        "dqn_adam",
        "jax/agents/dqn/configs/dqn.gin",
        learning_rate=6.25e-5,
        optimiser_epsilon=1.5e-4,
        head="one value, squared error",
    ),
    _dopamine(
        "c51",
        "jax/agents/rainbow/configs/c51.gin",
        learning_rate=2.5e-4,
        optimiser_epsilon=3.125e-4,
        head="51 atoms on [-10, 10]",
    ),
    _dopamine(
        "qrdqn",
        "jax/agents/quantile/configs/quantile.gin",
        learning_rate=5e-5,
        optimiser_epsilon=3.125e-4,
        n_step=3,
        prioritised=True,
        head="200 quantiles, kappa 1",
    ),
    _dopamine(
        "iqn",
        "jax/agents/implicit_quantile/configs/implicit_quantile.gin",
        learning_rate=5e-5,
        optimiser_epsilon=3.125e-4,
        n_step=3,
        head="64 cosines, 64 levels online, 64 target, 32 to choose",
    ),
    _dopamine(
        "rainbow",
        "jax/agents/rainbow/configs/rainbow.gin",
        learning_rate=6.25e-5,
        optimiser_epsilon=1.5e-4,
        n_step=3,
        prioritised=True,
        head="51 atoms on [-10, 10]; not double, dueling or noisy",
    ),
)
"""All of them."""


def published_agents(protocol: str) -> tuple[PublishedAgent, ...]:
    """The agents a protocol was published with; variants of the paper's have the paper's."""
    rows = tuple(row for row in PUBLISHED if row.protocol == protocol or protocol.startswith(f"{row.protocol}_"))
    if not rows:
        raise SettingsError(f"no agents for {protocol!r}; {nearest(protocol, {row.protocol for row in PUBLISHED})}")
    return rows
