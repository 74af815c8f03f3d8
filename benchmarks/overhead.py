"""What exploring by a criterion costs: PQR, DLTV and p-DLTV beside QR-DQN, the same in everything else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rich.console import Console

from benchmarks.chain_training import agents_training
from benchmarks.compare import Part, compare, raw
from benchmarks.progress import counting, waiting
from benchmarks.workers import Team, interleave

BASELINE = "qrdqn"
NAMES = {"qrdqn": "QR-DQN", "pqr": "PQR", "dltv": "DLTV", "p_dltv": "p-DLTV"}


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int = 80
    chunk: int = 1_000


QUICK = Effort(rounds=4, chunk=500)


def measure(console: Console, quick: bool) -> Part:
    """Time chunks of the four agents in turn, in one process."""
    effort = QUICK if quick else Effort()
    with waiting(console, f"compiling and warming up {', '.join(NAMES.values())}"):
        # One thread: what a criterion costs is arithmetic, and threads that wait for one another only add noise.
        team = Team(agents_training, [{"names": list(NAMES), "chunk": effort.chunk}], one_thread=True)
    try:
        with counting(console, "chunks", effort.rounds) as tick:
            taken = interleave({name: partial(team.turn, name) for name in NAMES}, effort.rounds, tick)
    finally:
        team.close()
    comparisons = [
        compare("N-Chain", "steps/s", (NAMES[name], taken[name]), (NAMES[BASELINE], taken[BASELINE]))
        for name in NAMES
        if name != BASELINE
    ]
    notes = [
        f"{effort.rounds} rounds of {effort.chunk:,} steps of each agent, one after the other in one process with one "
        "thread. A ratio of 0.98 means 2 % slower than QR-DQN."
    ]
    turns = {NAMES[name]: raw(turns) for name, turns in taken.items()}
    return Part("overhead", "Cost of the criterion", comparisons, notes, turns)
