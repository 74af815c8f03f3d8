"""Training beside other agents written in JAX: rejax, whose environments are inside XLA, and sbx, a host loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.compare import Comparison, Part, compare, median_cores, raw
from benchmarks.gym_training import tremble_gym
from benchmarks.jax_peers_training import COLUMN, MEMORY, ZOO, our_changes, tremble_inside
from benchmarks.race import race
from benchmarks.workers import Elsewhere, Team

OURS, INSIDE, REJAX, REJAX_SMALL, SBX = "tremble", "tremble, inside XLA", "rejax", "rejax, small memory", "sbx"
CARTPOLE, BREAKOUT = "CartPole", "MinAtar Breakout"
EVERY_STEP, AS_ZOO = "an update per step", "rl-zoo settings"
SMALL_MEMORY = 1_000
HERE = Path(__file__).parent
PYTHON_OF_PEERS = HERE.parent / ".venv-jax-peers" / "bin" / "python"
Starts = dict[str, Callable[[], Team | Elsewhere]]


def measure(console: Console, quick: bool) -> Part:
    """Time training once it has started, set-up and compilation apart."""
    part = Part("jax_peers", "JAX peers", [], _notes())
    if not PYTHON_OF_PEERS.exists():
        part.notes = ["Not measured: `make bench` makes the environment of these peers."]
        return part
    for case, starts in _cases(quick).items():
        taken, facts = race(console, case, starts, 2 if quick else 8)
        part.comparisons += _beside_ours(case, taken)
        part.notes.append(f"{case}: cores busy {', '.join(f'{median_cores(t):.1f} ({n})' for n, t in taken.items())}.")
        part.turns |= {f"{case} | {name}": raw(turns) for name, turns in taken.items()}
        part.facts |= {f"{case} | {name}": fact for name, fact in facts.items()}
    part.notes.append(f"Versions beside them: {_versions(part.facts)}.")
    return part


def _cases(quick: bool) -> dict[str, Starts]:
    """Who runs in each case, and how to start them."""
    cases: dict[str, Starts] = {}
    for agent, steps in {"dqn": 4_000, "iqn": 300}.items():
        n = 40 if quick else steps
        for title, env, theirs in (
            (CARTPOLE, "cartpole", "CartPole-v1"),
            (BREAKOUT, "breakout", "Breakout-MinAtar"),
        ):
            inside = partial(Team, tremble_inside, [{"agent": agent, "env": env, "steps": n}])
            cases[f"{title}, {agent}"] = _with_rejax(theirs, agent, n, inside)
        cases[f"{CARTPOLE}, {agent}"][OURS] = _our_cartpole(agent, min(n, 1_000), COLUMN)
    for title, column, steps in ((EVERY_STEP, COLUMN, 40 if quick else 600), (AS_ZOO, ZOO, 256 if quick else 2_048)):
        cases[f"{CARTPOLE}, dqn, {title}"] = {
            OURS: _our_cartpole("dqn", steps, column),
            SBX: _elsewhere("sbx_peer.py", env="CartPole-v1", steps=steps, memory=MEMORY, column=column),
        }
    return cases


def _our_cartpole(agent: str, steps: int, column: dict[str, Any]) -> Callable[[], Team]:
    changes = our_changes(agent, column)
    options = {"env": "CartPole-v1", "domain": "control", "seed": 0, "steps": steps, "warm_up": 2 * steps}
    return partial(Team, tremble_gym, [options | {"changes": changes, "agent_name": agent}])


def _with_rejax(env: str, agent: str, steps: int, ours: Callable[[], Team]) -> Starts:
    """Ours, and rejax with a memory as large as ours and with a small one."""
    sizes = {REJAX: MEMORY, REJAX_SMALL: SMALL_MEMORY}
    return {INSIDE: ours} | {
        name: _elsewhere("rejax_peer.py", agent=agent, env=env, steps=steps, memory=memory, column=COLUMN)
        for name, memory in sizes.items()
    }


def _elsewhere(script: str, **options: Any) -> Callable[[], Elsewhere]:
    return partial(Elsewhere, PYTHON_OF_PEERS, HERE / script, options)


def _beside_ours(case: str, taken: dict[str, Any]) -> list[Comparison]:
    ours, theirs = ([name for name in taken if name.startswith(OURS) == own] for own in (True, False))
    return [compare(case, "steps/s", (this, taken[this]), (that, taken[that])) for this in ours for that in theirs]


def _notes() -> list[str]:
    return [
        "All: one environment; every step measured learns (with rl-zoo's settings turns are made of whole rounds). "
        "Compilation and set-up are not in these numbers. Default threads.",
        f"Beside rejax: batch {COLUMN['batch_size']}, an MLP of 64 x 64 with ReLU (on Breakout of the picture as a "
        "vector: rejax has no convolutions), an update every step, target copied every "
        f"{COLUMN['target_update_interval']}, a memory of {MEMORY:,}; IQN with 64 levels of the prediction, 64 of the "
        "target, 32 to choose, 64 cosines and a further layer of 64. A turn is one compiled call of rejax's own "
        "`train_iteration`, without its evaluations.",
        f"rejax draws a batch without replacement, for which it sorts a random number per item of the whole memory. "
        f"Beside '{REJAX_SMALL}', which holds {SMALL_MEMORY:,}, tremble keeps its {MEMORY:,}.",
        f"{CARTPOLE}: rejax's runs inside XLA (gymnax). tremble's does so too where it says so (`jax_cartpole.py`, an "
        f"environment of one's own); without these words it is Gymnasium's, stepped from Python. {BREAKOUT}: inside "
        "XLA in both, with three actions and none repeated at random.",
        "Where they differ by design: rejax's DQN has the squared error, ours Huber's; rejax's IQN bootstraps from the "
        "newest parameters, and its last hidden layer has another activation.",
        f"'{AS_ZOO}' are rl-baselines3-zoo's for DQN on CartPole: 256 x 256, a memory of {MEMORY:,}, 128 updates of "
        "batch 64 after every 256 steps, learning rate 0.0023, target copied every 10 steps (in both libraries while "
        "acting, so it stays the same through a round); exploration is at its final 4 %. sbx has no QR-DQN.",
    ]


def _versions(facts: dict[str, Any]) -> str:
    found: dict[str, str] = {}
    for fact in facts.values():
        found |= fact.get("versions", {})
    return ", ".join(f"{name} {number}" for name, number in found.items())
