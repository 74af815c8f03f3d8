"""The paper's hyperparameter columns as data, and those of the domains that it does not have."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from tremble.core import TimeOrigin
from tremble.envs.atari_games import is_atari
from tremble.envs.protocols import AtariProtocol
from tremble.envs.published_agents import PublishedAgent, published_agents
from tremble.learn import RMSProp
from tremble.networks import MINATAR, ConvSpec


@dataclass(frozen=True)
class Column:
    """One column of the paper's table of hyperparameters, with what the table leaves out.

    Adam's epsilon 0.01 / batch size and the network are not in the table; they are those of the code bases whose
    settings the column repeats. The Atari column's ``widths`` are the dense layer behind the convolutions.
    """

    batch_size: int
    n_quantiles: int
    kappa: float
    beta: float
    memory_size: int
    learning_rate: float
    gamma: float
    update_interval: int
    target_update_interval: int
    start_steps: int
    epsilon_start: float
    epsilon_end: float
    epsilon_decay_steps: int
    c: float
    delta_0: float
    widths: tuple[int, ...]
    epsilon_origin: TimeOrigin = "zero"
    """Where epsilon begins to fall."""
    support: tuple[float, float] = (-10.0, 10.0)
    """What a categorical representation spreads its atoms over; it should cover the returns."""
    network: ConvSpec | None = None
    """Convolutions in front of the layers of ``widths``; None has none."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the agent, by name."""
    published: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that single agents were published with, or need here, where they differ from the column."""


_DENSE_IN_HEAD: dict[str, Any] = {"widths": (), "n_hidden": 512}
"""The head begins where the convolutions end, and the dense layer is its own: levels are multiplied with what the
convolutions give, and every head of an ensemble has a dense layer."""
_RAINBOW: dict[str, Any] = {
    "learning_rate": 6.25e-5,
    "adam_epsilon": 1.5e-4,
    "start_steps": 20_000,
    "target_update_interval": 8_000,
    "priority_exponent": 0.5,
}
_DENSE_IN_STREAMS: dict[str, Any] = {"widths": (), "stream_width": 512}
"""Likewise, in both streams of Rainbow's head, noisy where the head is."""
_SIZES_BY_PROTOCOL: dict[tuple[str, str], dict[str, Any]] = {
    ("dqn_zoo", "qrdqn"): {"n_quantiles": 201},
    ("dqn_zoo", "iqn"): {"n_choose": 64},
}
"""What differs from the preset, by protocol and agent."""

_LUNARLANDER = Column(
    batch_size=128,
    n_quantiles=170,
    kappa=1.0,
    beta=0.05,
    memory_size=100_000,
    learning_rate=1.5e-3,
    gamma=0.99,
    update_interval=1,
    target_update_interval=1,
    start_steps=10_000,
    epsilon_start=1.0,
    epsilon_end=0.01,
    epsilon_decay_steps=100_000,
    c=50.0,
    delta_0=5e4,
    widths=(256, 256),
    support=(-400.0, 400.0),
    published={name: {"option_epsilon_decay_steps": 1e5} for name in ("quota", "quota_onpolicy")},
)

COLUMNS: dict[str, Column] = {
    "nchain": Column(
        batch_size=64,
        n_quantiles=200,
        kappa=1.0,
        beta=0.05,
        memory_size=1_000_000,
        learning_rate=5e-5,
        gamma=0.9,
        update_interval=1,
        target_update_interval=25,
        start_steps=500,
        epsilon_start=1.0,
        epsilon_end=0.01,
        epsilon_decay_steps=2_500,
        c=50.0,
        delta_0=5e2,
        widths=(64, 64),
        support=(-4.0, 16.0),
    ),
    "lunarlander": _LUNARLANDER,
    "atari": Column(
        batch_size=32,
        n_quantiles=200,
        kappa=1.0,
        beta=0.05,
        memory_size=1_000_000,
        learning_rate=5e-5,
        gamma=0.99,
        update_interval=4,
        target_update_interval=10_000,
        start_steps=50_000,
        epsilon_start=1.0,
        epsilon_end=0.01,
        epsilon_decay_steps=250_000,
        c=50.0,
        delta_0=1e6,
        widths=(512,),
        network=ConvSpec(),
        support=(-10.0, 10.0),
        # DQN Zoo's, in agent steps.
        published={
            "dqn": {"learning_rate": 2.5e-4},
            "double_dqn": {"learning_rate": 2.5e-4},
            "prioritised_dqn": {"learning_rate": 2.5e-4 / 4},
            "bootstrapped_dqn": {"learning_rate": 2.5e-4} | _DENSE_IN_HEAD,
            **{name: _DENSE_IN_HEAD for name in ("iqn", "fqf", "ndqfn", "pqr_iqn", "pqr_fqf")},
            "c51": {"learning_rate": 2.5e-4},
            "pqr_c51": {"learning_rate": 2.5e-4},
            # QUOTA's own: its counters are steps of one of 16 environments, ours are transitions.
            "quota_onpolicy": {
                "target_update_interval": 160_000,
                "epsilon_end": 0.05,
                "epsilon_decay_steps": 4e6,
                "option_epsilon_decay_steps": 4e7,
            },
            "rainbow": _RAINBOW | _DENSE_IN_STREAMS,
            "pqr_rainbow": _RAINBOW | _DENSE_IN_STREAMS,  # what a criterion does shows only beside equal settings
            "rainbow_dopamine": _RAINBOW,
        },
    ),
    # Ours, for a first success on Atari without an accelerator: half the filters and a dense layer of 256, 50 quantiles
    # (together half of an update's time), returns over three steps, exploration that fades within 100,000 steps.
    "atari_small": Column(
        batch_size=32,
        n_quantiles=50,
        kappa=1.0,
        beta=0.05,
        memory_size=200_000,
        learning_rate=2.5e-4,
        gamma=0.99,
        update_interval=2,
        target_update_interval=1_000,
        start_steps=5_000,
        epsilon_start=1.0,
        epsilon_end=0.01,
        epsilon_decay_steps=50_000,
        c=50.0,
        delta_0=1e5,
        widths=(256,),
        network=ConvSpec(((16, 8, 4), (32, 4, 2), (32, 3, 1))),
        support=(-10.0, 10.0),
        settings={"n_step": 3},
    ),
    # Not the paper's: MinAtar's own (Young and Tian 2019) for DQN, with Adam in place of RMSProp at the same learning
    # rate, 50 quantiles (200 nearly double the time of an update), and the perturbation fading as on LunarLander, where
    # Delta_t falls to 1 halfway through: after 500,000 of the million steps these runs are made of. c stays 50.
    "minatar": Column(
        batch_size=32,
        n_quantiles=50,
        kappa=1.0,
        beta=0.05,
        memory_size=100_000,
        learning_rate=2.5e-4,
        gamma=0.99,
        update_interval=1,
        target_update_interval=1_000,
        start_steps=5_000,
        epsilon_start=1.0,
        epsilon_end=0.1,
        epsilon_decay_steps=100_000,
        c=50.0,
        delta_0=5e5,
        widths=(128,),
        support=(0.0, 25.0),  # no reward is negative; what falls outside shows in the metrics as clipped mass
        network=ConvSpec(MINATAR, scale=1.0),
    ),
    # Not the paper's: what rl-baselines3-zoo publishes for QR-DQN on LunarLander, from which the paper's column comes.
    # Bursts of 256 updates every 256 steps, so that the target (copied at every step) stays fixed during a burst.
    "sb3_zoo": Column(
        batch_size=128,
        n_quantiles=170,
        kappa=1.0,
        beta=0.05,
        memory_size=100_000,
        learning_rate=1.35e-3,  # 1.5e-3 falling to 0 over 100,000 steps, of which 10,000 pass before learning starts
        gamma=0.995,
        update_interval=256,
        target_update_interval=256,
        start_steps=10_000,
        epsilon_start=1.0,
        epsilon_end=0.18,
        epsilon_decay_steps=24_000,
        c=50.0,
        delta_0=5e4,
        widths=(256, 256),
        support=(-400.0, 400.0),
        settings={"updates_per_round": 256, "decay_updates": 90_000},
        published={name: {"option_epsilon_decay_steps": 1e5} for name in ("quota", "quota_onpolicy")},
    ),
    # Ours, for small control problems: learning begins early, and exploration fades within ten thousand steps.
    "control": Column(
        batch_size=64,
        n_quantiles=32,
        kappa=1.0,
        beta=0.05,
        memory_size=50_000,
        learning_rate=5e-4,
        gamma=0.99,
        update_interval=1,
        target_update_interval=1,
        start_steps=500,
        epsilon_start=1.0,
        epsilon_end=0.02,
        epsilon_decay_steps=5_000,
        c=5.0,
        delta_0=2e3,
        widths=(64, 64),
        support=(-100.0, 100.0),
        settings={"target_tau": 0.02, "double": True, "layer_norm": True},
    ),
    # The paper's for LunarLander with a learning rate that ends at zero and fewer quantiles. What PQR does not read
    # (the rate of epsilon-greedy, the size of DLTV's bonus) is ours.
    "lunarlander_tuned": dataclasses.replace(
        _LUNARLANDER,
        n_quantiles=32,
        epsilon_end=0.02,
        epsilon_decay_steps=10_000,
        c=5.0,
        settings={"decay_updates": 90_000},
        published={},
    ),
}


def domain_of(env: str) -> str:
    """The column that goes with an environment: the paper's for its own domains, `control` for everything else."""
    name = env.rsplit("/", 1)[-1].lower()
    if env.lower().startswith("minatar/") or name.startswith("minatar"):
        return "minatar"
    if name.startswith("nchain"):
        return "nchain"
    if name.startswith("lunarlander"):
        return "lunarlander"
    return "atari" if is_atari(env) or env.startswith("ALE/") or "noframeskip" in name else "control"


def under(column: Column, protocol: AtariProtocol) -> Column:
    """A column with what a protocol says about learning, exploration and the network."""
    starts = {"he_uniform": "he_convolutions"}
    return dataclasses.replace(
        column,
        gamma=protocol.gamma,
        batch_size=protocol.batch_size,
        memory_size=protocol.replay_capacity,
        start_steps=protocol.replay_start_steps,
        update_interval=protocol.update_every_steps,
        target_update_interval=protocol.target_update_steps,
        epsilon_start=protocol.epsilon_start,
        epsilon_end=protocol.epsilon_end,
        epsilon_decay_steps=protocol.epsilon_decay_steps,
        epsilon_origin=protocol.epsilon_origin,
        settings=column.settings
        | {
            "network.padding": protocol.padding,
            "network.initialisation": starts.get(protocol.torso_initialisation, protocol.torso_initialisation),
        },
        published=column.published
        | {
            a.agent: column.published.get(a.agent, {})
            | _as_published(a)
            | _SIZES_BY_PROTOCOL.get((protocol.name, a.agent), {})
            for a in published_agents(protocol.name)
        },
    )


def _as_published(agent: PublishedAgent) -> dict[str, Any]:
    """Settings by our names; ``optimiser`` is one in place of the preset's."""
    settings: dict[str, Any] = {
        "learning_rate": agent.learning_rate,
        "start_steps": agent.replay_start_steps,
        "target_update_interval": agent.target_update_steps,
        "n_step": agent.n_step,
        "prioritised": agent.prioritised,
        "max_grad_norm": 10.0 if agent.gradient == "global_norm_10" else None,
    }
    if agent.optimiser == "adam":
        settings["adam_epsilon"] = agent.optimiser_epsilon
    else:
        settings["optimiser"] = RMSProp(agent.learning_rate, 0.95, agent.optimiser_epsilon, centred=True)
    if agent.epsilon_end is not None:
        settings["epsilon_end"] = agent.epsilon_end
    return settings
