"""Steps per second of training on Gymnasium environments, beside sb3-contrib and Tianshou."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.compare import Part, compare, median_cores, raw
from benchmarks.gym_training import sb3_gym, tianshou_gym, tremble_gym
from benchmarks.race import race
from benchmarks.workers import Team


@dataclass(frozen=True)
class Case:
    """One environment with the settings both libraries are given, and how long a turn is."""

    title: str
    env: str
    hyperparameters: str
    changes: dict[str, Any]
    tremble_steps: int
    peer_steps: int


CASES = (
    Case("LunarLander, the paper's column", "LunarLander-v3", "lunarlander", {}, 600, 60),
    Case(
        "CartPole, 25 quantiles",
        "CartPole-v1",
        "control",
        {"n_quantiles": 25, "batch_size": 64, "widths": (64, 64), "target_update_interval": 100},
        2000,
        400,
    ),
)


def measure(console: Console, quick: bool) -> Part:
    """Time training once it has started, set-up and compilation apart."""
    rounds, cores = (2 if quick else 16), machine.cores()
    comparisons, notes, everything, all_facts = [], [], {}, {}
    for case in CASES:
        one, each = "tremble", "tremble, one process per core"
        peer, peers, third = "sb3-contrib", "sb3-contrib, one process per core", "Tianshou"
        common = {"env": case.env, "hyperparameters": case.hyperparameters, "changes": case.changes}
        ours = common | {"steps": case.tremble_steps // (4 if quick else 1), "warm_up": 100}
        theirs = common | {"steps": case.peer_steps // (4 if quick else 1), "warm_up": 20}
        starts = {
            peer: partial(Team, sb3_gym, [theirs | {"seed": 0}]),
            third: partial(Team, tianshou_gym, [theirs | {"seed": 0}]),
            one: partial(Team, tremble_gym, [ours | {"seed": 0}]),
            peers: partial(Team, sb3_gym, [theirs | {"seed": s} for s in range(cores)], one_thread=True),
            each: partial(Team, tremble_gym, [ours | {"seed": s} for s in range(cores)], one_thread=True),
        }
        taken, facts = race(console, case.title, starts, rounds)
        comparisons += [
            compare(f"{case.title}, {what}", "steps/s", (this, taken[this]), (that, taken[that]))
            for what, this, that in [
                ("one run", one, peer),
                ("one run", one, third),
                ("a run per core, total", each, peers),
                ("a run per core, total", each, peer),
            ]
        ]
        shares = ", ".join(f"{part} {ms:.2f}" for part, ms in facts[one]["shares"].items())
        memory = ", ".join(f"{facts[name]['peak_mib']:,.0f} MiB ({name})" for name in (one, peer, third))
        busy = ", ".join(f"{median_cores(turns):.1f} ({name})" for name, turns in taken.items())
        notes += [
            f"{case.title}: milliseconds of each part of a step, done alone (in training they overlap): {shares}.",
            f"{case.title}: peak memory of a process {memory}. Cores busy: {busy}.",
        ]
        everything |= {f"{case.title}, {name}": raw(turns) for name, turns in taken.items()}
        all_facts |= {f"{case.title}, {name}": fact for name, fact in facts.items()}
    notes.append(
        "QR-DQN in all, the same batch, quantiles, network and an update every step; every step measured learns."
    )
    return Part("gym", "Gymnasium training", comparisons, notes, everything, all_facts)
