"""Steps per second of every preset, beside the peers that have the same agent."""

from __future__ import annotations

from functools import partial
from typing import Any

from rich.console import Console

from benchmarks.compare import Comparison, Part, compare, raw
from benchmarks.family_training import preset_names, sb3_family, tianshou_family, tremble_family
from benchmarks.progress import counting, waiting
from benchmarks.workers import Team, interleave

PEERS: dict[str, dict[str, Any]] = {
    "dqn": {"stable-baselines3": sb3_family, "Tianshou": tianshou_family},
    "c51": {"Tianshou": tianshou_family},
    "qrdqn": {"sb3-contrib": sb3_family, "Tianshou": tianshou_family},
    "iqn": {"Tianshou": tianshou_family},
    "fqf": {"Tianshou": tianshou_family},
    "rainbow": {"Tianshou": tianshou_family},
}
"""Who has which of our presets."""
BASELINE = "qrdqn"
QUICK = ("dqn", "qrdqn", "rainbow")
PLACES = {"gym": "CartPole, host loop", "nchain": "N-Chain"}


def measure(console: Console, quick: bool) -> Part:
    """Each preset with peers beside them; then all presets beside QR-DQN, on CartPole and on N-Chain."""
    rounds, peer_steps = (2, 40) if quick else (8, 200)
    names = [name for name in preset_names() if not quick or name in QUICK]
    comparisons: list[Comparison] = []
    everything: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    for name in (n for n in PEERS if n in names):
        made, taken, found = beside_peers(console, name, peer_steps, rounds)
        comparisons += made
        everything |= {f"CartPole, {name}, {who}": raw(turns) for who, turns in taken.items()}
        facts |= {f"CartPole, {name}, {who}": fact for who, fact in found.items()}
    for where, title in PLACES.items():
        made, taken, found = beside_each_other(console, names, where, rounds)
        comparisons += made
        everything |= {f"{title}, {name}": raw(turns) for name, turns in taken.items()}
        facts |= {f"{title}, {name}": fact for name, fact in found.items()}
    outside = [name for name in names if not facts[f"N-Chain, {name}"]["inside_xla"]]
    notes = [
        "All: batch 64, an MLP of 64 x 64, an update every step, target copied every 100; 32 quantiles, 51 categories, "
        "8 sampled levels (32 to choose) with 64 cosines and a further layer of 64, 32 fractions, 32 particles. "
        "Rainbow: 51 categories, double where the library has it, dueling, noisy, prioritised, 3 steps.",
        "Every step measured learns (quota_onpolicy: every fifth, from the rollout of one environment); compilation "
        "and set-up are not in these numbers. One run, default threads.",
        f"On N-Chain {', '.join(outside) or 'none'} run on the host loop, all others inside XLA, where the five states "
        "are listed (see README).",
    ]
    return Part("family", "Every preset", comparisons, notes, everything, facts)


def beside_peers(console: Console, name: str, steps: int, rounds: int) -> tuple[list[Comparison], Any, Any]:
    """One agent in all libraries, on CartPole."""
    teams: dict[str, Team] = {}
    try:
        with waiting(console, f"{name}: starting and warming up"):
            teams["tremble"] = Team(tremble_family, [{"names": [name], "where": "gym"}])
            for peer, build in PEERS[name].items():
                teams[peer] = Team(build, [{"kind": name, "steps": steps}])
        with counting(console, f"{name} beside peers", rounds) as tick:
            taken = interleave({who: partial(team.turn, name) for who, team in teams.items()}, rounds, tick)
        facts = {who: team.facts[0] for who, team in teams.items()}
    finally:
        for team in teams.values():
            team.close()
    case = f"CartPole, {name}"
    made = [compare(case, "steps/s", ("tremble", taken["tremble"]), (peer, taken[peer])) for peer in PEERS[name]]
    return made, taken, facts


def beside_each_other(
    console: Console, names: list[str], where: str, rounds: int
) -> tuple[list[Comparison], dict[str, Any], dict[str, Any]]:
    """All presets in one process, beside QR-DQN."""
    with waiting(console, f"{PLACES[where]}: compiling {len(names)} presets"):
        team = Team(tremble_family, [{"names": names, "where": where}])
    try:
        with counting(console, PLACES[where], rounds) as tick:
            taken = interleave({name: partial(team.turn, name) for name in names}, rounds, tick)
    finally:
        team.close()
    base = (BASELINE, taken[BASELINE])
    made = [compare(PLACES[where], "steps/s", (name, taken[name]), base) for name in names if name != BASELINE]
    return made, taken, team.facts[0]
