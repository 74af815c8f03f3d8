"""What exploring by a criterion costs: PQR, DLTV and p-DLTV beside QR-DQN, the same in everything else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rich.console import Console

from benchmarks.chain_training import agents_training
from benchmarks.compare import Part, compare, raw
from benchmarks.gym_training import tremble_gym
from benchmarks.progress import counting, waiting
from benchmarks.race import race
from benchmarks.workers import Team, Turn, interleave

BASELINE = "qrdqn"
NAMES = {"qrdqn": "QR-DQN", "pqr": "PQR", "dltv": "DLTV", "p_dltv": "p-DLTV"}
LISTED, UNLISTED, LUNARLANDER = "N-Chain", "N-Chain, states not listed", "LunarLander, the paper's column"


@dataclass(frozen=True)
class Effort:
    """How long to measure: rounds, and steps in a turn."""

    rounds: int = 80
    listed: int = 1_000
    unlisted: int = 250
    lunarlander: int = 250


QUICK = Effort(rounds=4, listed=500, unlisted=250, lunarlander=50)


def measure(console: Console, quick: bool) -> Part:
    """Time short turns of the agents in turn: where a step is shortest, and where it has its usual length."""
    effort = QUICK if quick else Effort()
    few = effort.rounds // 2
    measured = {
        LISTED: _on_the_chain(console, LISTED, effort.rounds, effort.listed, listed=True),
        UNLISTED: _on_the_chain(console, UNLISTED, few, effort.unlisted, listed=False),
        LUNARLANDER: _on_lunarlander(console, LUNARLANDER, few, effort.lunarlander),
    }
    comparisons = [
        compare(title, "steps/s", (NAMES[name], taken[name]), (NAMES[BASELINE], taken[BASELINE]))
        for title, taken in measured.items()
        for name in taken
        if name != BASELINE
    ]
    notes = [
        f"{effort.rounds} rounds of {effort.listed:,} steps of each agent ({few} of {effort.unlisted:,} "
        f"and of {effort.lunarlander:,} in the other two), one after the other on one core. A ratio of 0.98 means 2 % "
        "slower than QR-DQN.",
        "Where an environment lists its states, as this chain of five does, the network is evaluated once per state; "
        "that makes a step so short that what the criterion adds shows.",
    ]
    turns = {
        f"{title} | {NAMES[name]}": raw(turns) for title, taken in measured.items() for name, turns in taken.items()
    }
    return Part("overhead", "Cost of the criterion", comparisons, notes, turns)


def _on_the_chain(console: Console, title: str, rounds: int, chunk: int, listed: bool) -> dict[str, list[Turn]]:
    """All four, in one process."""
    with waiting(console, f"{title}: compiling and warming up {', '.join(NAMES.values())}"):
        # One thread: what a criterion costs is arithmetic, and threads that wait for one another only add noise.
        team = Team(agents_training, [{"names": list(NAMES), "chunk": chunk, "listed": listed}], one_thread=True)
    try:
        with counting(console, title, rounds) as tick:
            return interleave({name: partial(team.turn, name) for name in NAMES}, rounds, tick)
    finally:
        team.close()


def _on_lunarlander(console: Console, title: str, rounds: int, steps: int) -> dict[str, list[Turn]]:
    """QR-DQN and PQR by the host loop, each in a process."""
    run = {"env": "LunarLander-v3", "domain": "lunarlander", "seed": 0, "steps": steps, "warm_up": 100, "changes": {}}
    starts = {
        name: partial(Team, tremble_gym, [run | {"agent_name": name}], one_thread=True) for name in (BASELINE, "pqr")
    }
    return race(console, title, starts, rounds)[0]
