"""Contenders from start to end: started one by one, given turns round after round, closed whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from benchmarks.progress import counting, waiting
from benchmarks.workers import Elsewhere, Team, Turn, interleave


def race(
    console: Console, title: str, starts: Mapping[str, Callable[[], Team | Elsewhere]], rounds: int
) -> tuple[dict[str, list[Turn]], dict[str, Any]]:
    """Turns and facts by name; ``starts`` says how to start each."""
    teams: dict[str, Team | Elsewhere] = {}
    try:
        for name, start in starts.items():
            with waiting(console, f"{title}: starting and warming up {name}"):
                teams[name] = start()
        with counting(console, title, rounds) as tick:
            taken = interleave({name: team.turn for name, team in teams.items()}, rounds, tick)
        return taken, {name: team.facts[0] for name, team in teams.items()}
    finally:
        for team in teams.values():
            team.close()
