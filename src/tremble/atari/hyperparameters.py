"""Hyperparameters for Atari: the paper's table, what the published protocols say, and a small one of ours."""

from __future__ import annotations

import dataclasses
from typing import Any

from tremble.atari.protocols import find_protocol
from tremble.atari.published_agents import PublishedAgent, published_agents
from tremble.hyperparameters import Hyperparameters
from tremble.networks import ConvSpec
from tremble.optimisers import RMSProp

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

ATARI: Hyperparameters = Hyperparameters(
    batch_size=32,
    n_quantiles=200,
    memory_size=1_000_000,
    learning_rate=5e-5,
    gamma=0.99,
    update_interval=4,
    target_update_interval=10_000,
    start_steps=50_000,
    epsilon_decay_steps=250_000,
    delta_0=1e6,
    widths=(512,),
    network=ConvSpec(),
    with_protocol=lambda protocol: with_protocol(ATARI, protocol),
    # DQN Zoo's, in agent steps.
    published={
        **{name: {"learning_rate": 2.5e-4} for name in ("dqn", "double_dqn", "c51", "pqr_c51")},
        "prioritised_dqn": {"learning_rate": 2.5e-4 / 4},
        "bootstrapped_dqn": {"learning_rate": 2.5e-4} | _DENSE_IN_HEAD,
        **{name: _DENSE_IN_HEAD for name in ("iqn", "fqf", "ndqfn", "pqr_iqn", "pqr_fqf")},
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
)

# Ours, for a first success on Atari without an accelerator: half the filters and a dense layer of 256, 50 quantiles
# (together half of an update's time), returns over three steps, exploration that fades within 100,000 steps.
ATARI_SMALL = dataclasses.replace(
    ATARI,
    n_quantiles=50,
    memory_size=200_000,
    learning_rate=2.5e-4,
    update_interval=2,
    target_update_interval=1_000,
    start_steps=5_000,
    epsilon_decay_steps=50_000,
    delta_0=1e5,
    widths=(256,),
    network=ConvSpec(((16, 8, 4), (32, 4, 2), (32, 3, 1))),
    settings={"n_step": 3},
    with_protocol=None,
    published={},
)


def with_protocol(table: Hyperparameters, name: str) -> Hyperparameters:
    """A table with what a protocol says about learning, exploration and the network."""
    protocol = find_protocol(name)
    starts = {"he_uniform": "he_convolutions"}
    return dataclasses.replace(
        table,
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
        settings=table.settings
        | {
            "network.padding": protocol.padding,
            "network.initialisation": starts.get(protocol.torso_initialisation, protocol.torso_initialisation),
        },
        published=table.published
        | {
            a.agent: table.published.get(a.agent, {})
            | _as_published(a)
            | _SIZES_BY_PROTOCOL.get((protocol.name, a.agent), {})
            for a in published_agents(protocol.name)
        },
        sources={a.agent: a.source for a in published_agents(protocol.name)},
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
