"""What a run of Atari takes: steps, updates, memory, disk and hours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tremble.atari.games import id_of
from tremble.atari.protocols import find_protocol
from tremble.core import Transition
from tremble.presets import make
from tremble.replay import frame_memory_estimate
from tremble.settings import SettingsError


@dataclass(frozen=True)
class RunCost:
    """What one run takes, by arithmetic; nothing is allocated."""

    steps: int
    updates: int
    replay_bytes: int
    """Memory of the replay once it is full."""
    disk_bytes: int
    """At most, while it runs: two checkpoints, which share the pictures that did not change between them."""
    hours: float | None
    """None if nobody said how fast it goes."""


def run_cost(
    agent: str, protocol: str, frames: int, frames_per_second: float | None = None, n_envs: int = 1, **changes: Any
) -> RunCost:
    """The cost of one run of an agent under a protocol; ``changes`` are settings of the agent."""
    rules = find_protocol(protocol)
    settings = make(agent, "atari", protocol=protocol, **changes).fitted_to(n_envs)
    steps = frames // rules.frame_skip_max
    if steps < 1 or (frames_per_second is not None and frames_per_second <= 0):
        raise SettingsError("a run has at least one step, and a speed above zero")
    picture, number = jnp.zeros((rules.height, rules.width, rules.stack), jnp.uint8), jnp.zeros(())
    example = Transition(picture, jnp.zeros((), jnp.int32), number, number, picture)
    example = jax.tree.map(np.asarray, example)
    replay = frame_memory_estimate(min(settings.memory_size, steps), example, settings.replay, n_envs)
    rounds = max(0, steps - settings.learning.start_steps) // settings.learning.update_interval
    hours = None if frames_per_second is None else frames / frames_per_second / 3600
    return RunCost(steps, rounds * settings.learning.updates_per_round, replay, 2 * replay, hours)


def measure_frames_per_second(agent: str, protocol: str, game: str = "pong", steps: int = 800) -> float:
    """Train for a moment, with learning, and take the time after everything is compiled."""
    from tremble.training.run import train

    seen: list[tuple[int, float]] = []
    start = 200
    train(
        agent,
        id_of(game),
        steps=start + steps,
        env_options={"protocol": protocol},
        record_every=100,
        start_steps=start,
        on_progress=lambda step, row: seen.append((step, time.perf_counter())),
    )
    learning = [(step, at) for step, at in seen if step >= start + 200]
    (first, begin), (last, end) = learning[0], learning[-1]
    if last == first:
        raise SettingsError("the speed cannot be taken from so few steps: give it some more")
    return (last - first) / (end - begin) * find_protocol(protocol).frame_skip_max
