"""Pong training beside sb3-contrib and Dopamine, where its time goes, and MinAtar inside XLA beside the host loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.atari_training import (
    BATCH,
    INTERVAL,
    MEMORY,
    QUANTILES,
    START,
    sb3_pong,
    tremble_minatar,
    tremble_pong,
)
from benchmarks.compare import Part, compare, median_cores, raw
from benchmarks.race import race
from benchmarks.workers import Elsewhere, Team, Turn

PONG, MINATAR = "Pong", "MinAtar Breakout"
OURS, OURS_PADDED, SB3, DOPAMINE = "tremble", "tremble, Dopamine's network", "sb3-contrib", "Dopamine"
MEANWHILE, MEANWHILE_PADDED = "tremble, overlap", "tremble, overlap, Dopamine's network"
INSIDE, OUTSIDE = "inside XLA", "host loop"
PYTHON_OF_DOPAMINE = Path(__file__).parent.parent / ".venv-dopamine" / "bin" / "python"


def measure(console: Console, quick: bool) -> Part:
    """Time training once it has started, set-up and compilation apart."""
    rounds, steps = (2, 40) if quick else (8, 400)
    taken, facts = _pong(console, rounds, steps)
    made = _minatar(console, rounds, 4 * steps)
    pairs = [(OURS, SB3), (MEANWHILE, SB3), (OURS_PADDED, DOPAMINE), (MEANWHILE_PADDED, DOPAMINE)]
    comparisons = [
        compare(PONG, "steps/s", (this, taken[this]), (that, taken[that])) for this, that in pairs if that in taken
    ]
    comparisons.append(compare(MINATAR, "steps/s", (INSIDE, made[INSIDE]), (OUTSIDE, made[OUTSIDE])))
    notes = [
        f"{PONG}: QR-DQN in all, batch {BATCH}, {QUANTILES} quantiles, an update every {INTERVAL} steps; a step is "
        "four frames, and what is measured comes after learning has started. Dopamine pads its convolutions, so its "
        "network is more work, and it is compared with the same.",
        f"{PONG}, overlap: actions come from the parameters before the newest update, which is at work meanwhile "
        "(`--set async_learning=true`); the work is the same.",
        f"{PONG}: cores busy {', '.join(f'{median_cores(t):.1f} ({name})' for name, t in taken.items())}.",
        *(_where_time_goes(name, facts[name]) for name in (OURS, OURS_PADDED) if name in facts),
        f"{MINATAR}: tremble's QR-DQN with its MinAtar column in both.",
    ]
    if DOPAMINE not in taken:
        notes.append(f"{PONG}: Dopamine was not measured; `make bench` makes its environment.")
    turns = {f"{PONG} | {name}": raw(t) for name, t in taken.items()}
    turns |= {f"{MINATAR} | {name}": raw(t) for name, t in made.items()}
    return Part("atari", "Atari and MinAtar", comparisons, notes, turns, facts)


def _pong(console: Console, rounds: int, steps: int) -> tuple[dict[str, list[Turn]], dict[str, Any]]:
    """Turns and facts by name."""
    starts: dict[str, Callable[[], Team | Elsewhere]] = {
        OURS: partial(Team, tremble_pong, [{"steps": steps, "protocol": "dqn_zoo"}]),
        MEANWHILE: partial(Team, tremble_pong, [{"steps": steps, "protocol": "dqn_zoo", "async_learning": True}]),
        SB3: partial(Team, sb3_pong, [{"steps": steps}]),
    }
    if PYTHON_OF_DOPAMINE.exists():
        options = {
            "steps": steps,
            "memory": MEMORY,
            "batch": BATCH,
            "quantiles": QUANTILES,
            "start": START,
            "interval": INTERVAL,
        }
        script = Path(__file__).parent / "dopamine_peer.py"
        starts[OURS_PADDED] = partial(Team, tremble_pong, [{"steps": steps, "protocol": "dopamine"}])
        starts[MEANWHILE_PADDED] = partial(
            Team, tremble_pong, [{"steps": steps, "protocol": "dopamine", "async_learning": True}]
        )
        starts[DOPAMINE] = partial(Elsewhere, PYTHON_OF_DOPAMINE, script, options)
    return race(console, PONG, starts, rounds)


def _where_time_goes(name: str, facts: dict[str, Any]) -> str:
    """The parts of a step, and how far the update is from its arithmetic."""
    update, flops, best = facts["shares"]["updating"] / 1e3, facts["flops"], facts["flops_per_second"]
    shares = ", ".join(f"{part} {ms:.2f}" for part, ms in facts["shares"].items())
    return (
        f"{PONG}, {name}: milliseconds of each part, done alone (in training they overlap, and an update comes every "
        f"{INTERVAL} steps): {shares}. An update is {flops / 1e9:.1f} billion operations, {flops / update / 1e9:.0f} "
        f"billion per second; a large product of matrices reaches {best / 1e9:.0f} here, so it takes "
        f"{update * best / flops:.1f} times what its arithmetic alone would."
    )


def _minatar(console: Console, rounds: int, steps: int) -> dict[str, list[Turn]]:
    """The same agent in both loops."""
    starts = {
        name: partial(Team, tremble_minatar, [{"inside": name == INSIDE, "steps": steps}]) for name in (INSIDE, OUTSIDE)
    }
    return race(console, MINATAR, starts, rounds)[0]
