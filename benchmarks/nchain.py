"""Training steps per second on N-Chain, tremble beside sb3-contrib: for one seed, and for many."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from benchmarks import machine
from benchmarks.chain_training import sb3_training, tremble_training
from benchmarks.compare import Part, compare, median_cores, raw
from benchmarks.progress import counting, waiting
from benchmarks.workers import Team, interleave

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
    line_up = {
        SB3: (sb3_training, [sb3 | {"seed": 0}], False),
        SINGLE: (tremble_training, [{"seeds": [0], "steps": steps}], False),
        UNLISTED: (tremble_training, [{"seeds": [0], "steps": steps, "listed": False}], False),
        SB3_PER_CORE: (sb3_training, [sb3 | {"seed": seed} for seed in range(cores)], True),
        PER_CORE: (tremble_training, [{"seeds": [seed], "steps": steps} for seed in range(cores)], True),
        VMAP: (tremble_training, [{"seeds": list(seeds), "steps": vmap_steps}], False),
    }
    teams: dict[str, Team] = {}
    try:
        for name, (build, each, one_thread) in line_up.items():
            with waiting(console, f"starting and warming up {name}"):
                teams[name] = Team(build, each, one_thread=one_thread)
        with counting(console, "training", effort.rounds) as tick:
            taken = interleave({name: team.turn for name, team in teams.items()}, effort.rounds, tick)
        facts = {name: team.facts[0] for name, team in teams.items()}
    finally:
        for team in teams.values():
            team.close()

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
