"""What exploring by a criterion costs: PQR, DLTV and p-DLTV beside QR-DQN, the same in everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.chain_training import agents_training
from benchmarks.compare import Part, compare_processes, raw
from benchmarks.gym_training import tremble_gym
from benchmarks.progress import counting, waiting
from benchmarks.race import race
from benchmarks.workers import Team, Turn, interleave

BASELINE = "qrdqn"
NAMES = {"qrdqn": "QR-DQN", "pqr": "PQR", "dltv": "DLTV", "p_dltv": "p-DLTV"}
LISTED, UNLISTED, LUNARLANDER = "N-Chain", "N-Chain, states not listed", "LunarLander, the paper's column"


@dataclass(frozen=True)
class Effort:
    """How long to measure: processes one after another, rounds in each, and steps in a turn."""

    processes: int = 8
    rounds: int = 12
    listed: int = 1_000
    unlisted: int = 250
    lunarlander: int = 250


QUICK = Effort(processes=2, rounds=2, listed=500, unlisted=250, lunarlander=50)
Measured = dict[str, list[list[Turn]]]
"""Turns of each agent, process by process."""


def measure(console: Console, quick: bool) -> Part:
    """Time short turns of the agents in turn: where a step is shortest, and where it has its usual length."""
    effort = QUICK if quick else Effort()
    with TemporaryDirectory() as cache:  # programs are compiled once and not in every process
        measured = {
            LISTED: _repeated(console, LISTED, effort, partial(_on_the_chain, effort.listed, True, cache)),
            UNLISTED: _repeated(console, UNLISTED, effort, partial(_on_the_chain, effort.unlisted, False, cache)),
            LUNARLANDER: _repeated(console, LUNARLANDER, effort, partial(_on_lunarlander, effort.lunarlander, cache)),
        }
    comparisons = [
        compare_processes(title, "steps/s", (NAMES[name], taken[name]), (NAMES[BASELINE], taken[BASELINE]))
        for title, taken in measured.items()
        for name in taken
        if name != BASELINE
    ]
    notes = [
        f"{effort.processes} processes one after another, {effort.rounds} rounds in each of {effort.listed:,} steps of "
        f"every agent ({effort.unlisted:,} and {effort.lunarlander:,} in the other two), one after the other on one "
        "core. A ratio of 0.98 means 2 % slower than QR-DQN; the interval is over processes.",
        "Where an environment lists its states, as this chain of five does, the network is evaluated once per state; "
        "that makes a step so short that what the criterion adds shows.",
    ]
    turns = {
        f"{title} | {NAMES[name]} | process {number}": raw(turns)
        for title, taken in measured.items()
        for name, processes in taken.items()
        for number, turns in enumerate(processes)
    }
    return Part("overhead", "Cost of the criterion", comparisons, notes, turns)


def _repeated(
    console: Console, title: str, effort: Effort, once: Callable[[Console, str, int, int], dict[str, list[Turn]]]
) -> Measured:
    """Measure in several processes one after another: ``once(console, title, rounds, number)``."""
    collected: Measured = {}
    for number in range(effort.processes):
        which = f"{title}, process {number + 1} of {effort.processes}"
        for name, turns in once(console, which, effort.rounds, number).items():
            collected.setdefault(name, []).append(turns)
    return collected


def _on_the_chain(
    chunk: int, listed: bool, cache: str, console: Console, title: str, rounds: int, number: int
) -> dict[str, list[Turn]]:
    """All four in one process; who comes first in memory changes from process to process."""
    names = [*NAMES][number % len(NAMES) :] + [*NAMES][: number % len(NAMES)]
    with waiting(console, f"{title}: starting and warming up {', '.join(NAMES[name] for name in names)}"):
        # One thread: what a criterion costs is arithmetic, and threads that wait for one another only add noise.
        options = {"names": names, "chunk": chunk, "listed": listed}
        team = Team(agents_training, [options], one_thread=True, cache=cache)
    try:
        with counting(console, title, rounds) as tick:
            return interleave({name: partial(team.turn, name) for name in names}, rounds, tick)
    finally:
        team.close()


def _on_lunarlander(
    steps: int, cache: str, console: Console, title: str, rounds: int, number: int
) -> dict[str, list[Turn]]:
    """QR-DQN and PQR by the host loop, each in a process, started in turn first."""
    run = {
        "env": "LunarLander-v3",
        "hyperparameters": "lunarlander",
        "seed": 0,
        "steps": steps,
        "warm_up": 100,
        "changes": {},
    }
    names = (BASELINE, "pqr") if number % 2 == 0 else ("pqr", BASELINE)
    starts = {
        name: partial(Team, tremble_gym, [run | {"agent_name": name}], one_thread=True, cache=cache) for name in names
    }
    return race(console, title, starts, rounds)[0]
