"""Training steps per second on N-Chain, tremble beside sb3-contrib: for one seed, and for many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rich.console import Console

from benchmarks import machine
from benchmarks.chain_training import sb3_training, tremble_training
from benchmarks.compare import Part, compare, median_cores, raw
from benchmarks.race import race
from benchmarks.workers import Team

SB3, SB3_PER_CORE = "sb3-contrib", "sb3-contrib, one process per core"
SINGLE, UNLISTED = "tremble", "tremble, states not listed"
PER_CORE, VMAP = "tremble, one process per core", "tremble, vmap over seeds"


@dataclass(frozen=True)
class Effort:
    """How long to measure, in steps per turn (an update each)."""

    rounds: int = 10
    sb3_steps: int = 150
    sb3_warm_up: int = 100
    tremble_steps: int = 2_000
    vmap_seeds: int = 8


QUICK = Effort(rounds=2, sb3_steps=40, sb3_warm_up=20, tremble_steps=500, vmap_seeds=2)


def measure(console: Console, quick: bool) -> Part:
    """Time training once it has started, set-up and compilation apart."""
    effort, cores = QUICK if quick else Effort(), machine.cores()
    steps, seeds = effort.tremble_steps, range(effort.vmap_seeds)
    sb3 = {"steps": effort.sb3_steps, "warm_up": effort.sb3_warm_up}
    # Turns of about the same length for the vectorised runs, in whole chunks of 500 steps.
    vmap_steps = max(steps // effort.vmap_seeds // 500, 1) * 500
    starts = {
        SB3: partial(Team, sb3_training, [sb3 | {"seed": 0}]),
        SINGLE: partial(Team, tremble_training, [{"seeds": [0], "steps": steps}]),
        UNLISTED: partial(Team, tremble_training, [{"seeds": [0], "steps": steps, "listed": False}]),
        SB3_PER_CORE: partial(Team, sb3_training, [sb3 | {"seed": seed} for seed in range(cores)], one_thread=True),
        PER_CORE: partial(
            Team, tremble_training, [{"seeds": [seed], "steps": steps} for seed in range(cores)], one_thread=True
        ),
        VMAP: partial(Team, tremble_training, [{"seeds": list(seeds), "steps": vmap_steps}]),
    }
    taken, facts = race(console, "N-Chain", starts, effort.rounds)

    comparisons = [
        compare(case, "steps/s", (this, taken[this]), (that, taken[that]))
        for case, this, that in [
            ("one seed", SINGLE, SB3),
            ("one seed", UNLISTED, SB3),
            ("many seeds, total", PER_CORE, SB3_PER_CORE),
            ("many seeds, total", VMAP, SB3_PER_CORE),
            ("many seeds, total", PER_CORE, SINGLE),
        ]
    ]
    compiling = ", ".join(f"{facts[name]['compile_seconds']:.1f} s ({name})" for name in (SINGLE, UNLISTED, VMAP))
    busy = ", ".join(f"{median_cores(turns):.1f} ({name})" for name, turns in taken.items())
    notes = [
        "QR-DQN with batch 64, 200 quantiles, an MLP of 64 x 64, an update every step; every step measured learns.",
        f"sb3-contrib: {effort.rounds * effort.sb3_steps:,} updates measured, with {facts[SB3]['threads']} threads "
        f"(its default) or {facts[SB3_PER_CORE]['threads']} per process; the environment alone makes "
        f"{facts[SB3]['env_steps_per_second']:,.0f} steps/s.",
        f"tremble: compilation is not in these numbers; once per process it took {compiling}.",
        f"One process per core: {cores} processes. Vmap: {effort.vmap_seeds} seeds in one process.",
        "tremble evaluates its network once per state where an environment lists its states, as this chain of five "
        'does; "states not listed" is tremble without that, as it would be in an environment with many states.',
        f"Cores busy: {busy}.",
    ]
    title = "N-Chain training"
    return Part("nchain", title, comparisons, notes, {name: raw(turns) for name, turns in taken.items()}, facts)
