"""Is this machine ready: what is installed, what there is room for, and what a study of Atari would take."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tremble.atari.games import GAMES, id_of
from tremble.atari.protocols import find_protocol
from tremble.core import Transition
from tremble.presets import make
from tremble.replay import frame_memory_estimate
from tremble.settings import SettingsError

PACKAGES = ("tremble", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium")
ATARI_MODULES = {"ale-py": "ale_py", "OpenCV": "cv2", "Pillow": "PIL"}
"""What Atari needs, by the modules: OpenCV comes in packages of several names."""
PAPER_GAMES = tuple(game for game in GAMES if game not in ("defender", "surround"))
"""The 55 games of the paper."""


def versions() -> dict[str, str | None]:
    """Versions of what is installed; None where it is not."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    for name, module in ATARI_MODULES.items():
        try:
            found[name] = str(getattr(importlib.import_module(module), "__version__", "installed"))
        except ImportError:
            found[name] = None
    return found


@dataclass(frozen=True)
class Machine:
    """What there is to run on."""

    system: str
    cores: int
    """Cores this process may use."""
    memory: int
    """Bytes in all, or what a container allows."""
    free_memory: int
    """Bytes that could be had now."""
    free_disk: int
    """Bytes free where runs go."""
    devices: tuple[str, ...]
    """What JAX computes on."""


def machine(directory: Path) -> Machine:
    """This machine, and the disk that a directory is or would be on."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    total, free = _memory()
    devices = tuple(f"{d.platform}: {d.device_kind}" for d in jax.devices())
    return Machine(
        f"{platform.system()} {platform.machine()}", cores, total, free, shutil.disk_usage(there).free, devices
    )


def _memory() -> tuple[int, int]:
    """Memory in all and to be had, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = total
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass  # not Linux: what is free is not known
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        total, free = min(total, limit), min(free, limit - used)
    except (OSError, ValueError):
        pass  # no container, or one without a limit
    return total, max(free, 0)


@dataclass(frozen=True)
class Bill:
    """What one run takes, by arithmetic; nothing is allocated."""

    steps: int
    updates: int
    replay_bytes: int
    """Memory of the replay once it is full."""
    disk_bytes: int
    """At most, while it runs: two checkpoints, which share the pictures that did not change between them."""
    hours: float | None
    """None if nobody said how fast it goes."""


def run_cost(
    agent: str, protocol: str, frames: int, frames_per_second: float | None = None, n_envs: int = 1, **changes: Any
) -> Bill:
    """The bill of one run of an agent under a protocol; ``changes`` are settings of the agent."""
    rules = find_protocol(protocol)
    settings = make(agent, "atari", protocol=protocol, **changes).fitted_to(n_envs)
    steps = frames // rules.frame_skip_max
    if steps < 1 or (frames_per_second is not None and frames_per_second <= 0):
        raise SettingsError("a run has at least one step, and a speed above zero")
    picture, number = jnp.zeros((rules.height, rules.width, rules.stack), jnp.uint8), jnp.zeros(())
    example = Transition(picture, jnp.zeros((), jnp.int32), number, number, picture)
    example = jax.tree.map(np.asarray, example)
    replay = frame_memory_estimate(min(settings.memory_size, steps), example, settings.replay, n_envs)
    rounds = max(0, steps - settings.learning.start_steps) // settings.learning.update_interval
    hours = None if frames_per_second is None else frames / frames_per_second / 3600
    return Bill(steps, rounds * settings.learning.updates_per_round, replay, 2 * replay, hours)


def measure_frames_per_second(agent: str, protocol: str, game: str = "pong", steps: int = 800) -> float:
    """Train for a moment, with learning, and take the time after everything is compiled."""
    from tremble.training.run import train

    seen: list[tuple[int, float]] = []
    start = 200
    train(
        agent,
        id_of(game),
        steps=start + steps,
        env_options={"protocol": protocol},
        record_every=100,
        start_steps=start,
        on_progress=lambda step, row: seen.append((step, time.perf_counter())),
    )
    learning = [(step, at) for step, at in seen if step >= start + 200]
    (first, begin), (last, end) = learning[0], learning[-1]
    if last == first:
        raise SettingsError("the speed cannot be taken from so few steps: give it some more")
    return (last - first) / (end - begin) * find_protocol(protocol).frame_skip_max


@dataclass(frozen=True)
class GameCheck:
    """How a game did."""

    game: str
    frames: int
    seconds: float
    episodes: int
    n_actions: int
    problem: str = ""
    """Empty if all is well."""


def check_game(game: str, protocol: str, frames: int = 2000, seed: int = 0) -> GameCheck:
    """Play a game at random under the rules of training, look at all it gives, and go back in time once."""
    from tremble.envs.gym import make_single

    env: Any = make_single(id_of(game), {"protocol": protocol, "training": True}).unwrapped
    rng = np.random.default_rng(seed)
    rules, problem, episodes = env.protocol, "", 0
    steps = max(1, frames // rules.frame_skip_max)
    obs, _ = env.reset(seed=seed)
    sums, begin = {int(obs.sum())}, time.perf_counter()
    for step in range(steps):
        if step == steps // 2:
            problem = problem or _rewound(env, rng.integers(env.action_space.n, size=10).tolist())
        obs, reward, terminated, truncated, info = env.step(int(rng.integers(env.action_space.n)))
        problem = problem or _wrong(obs, float(reward), info, rules)
        sums.add(int(obs.sum()))
        if terminated or truncated:
            episodes += 1
            obs, _ = env.reset()
    seconds = time.perf_counter() - begin
    if len(sums) < 2:
        problem = problem or "the picture never changes"
    env.close()
    return GameCheck(game, steps * rules.frame_skip_max, seconds, episodes, int(env.action_space.n), problem)


def _wrong(obs: np.ndarray, reward: float, info: dict[str, Any], rules: Any) -> str:
    if obs.shape != (rules.height, rules.width, rules.stack) or obs.dtype != np.uint8:
        return f"the observation is {obs.dtype}{list(obs.shape)}"
    if not np.isfinite(reward) or (rules.reward_clip != "none" and abs(reward) > 1):
        return f"a reward of training is {reward}"
    return "" if "lives" in info else "the number of lives is missing"


def _rewound(env: Any, actions: list[int]) -> str:
    """Whether a saved game goes on as it did before."""
    saved = env.save_state()

    def play() -> list[Any]:
        env.load_state(saved)
        seen = []
        for action in actions:
            obs, reward, terminated, truncated, _ = env.step(action)
            seen.append((obs.tobytes(), reward, terminated, truncated))
            if terminated or truncated:
                break
        return seen

    same = play() == play()
    env.load_state(saved)
    return "" if same else "a saved game does not go on as it did before"


def check_games(
    protocol: str,
    frames: int = 2000,
    games: tuple[str, ...] = PAPER_GAMES,
    on_game: Callable[[GameCheck], None] = print,
) -> list[GameCheck]:
    """All games, one after the other; what goes wrong in one is its problem, not the others'."""
    found = []
    for game in games:
        try:
            check = check_game(game, protocol, frames)
        except Exception as error:
            check = GameCheck(game, 0, 0.0, 0, 0, f"{type(error).__name__}: {error}")
        found.append(check)
        on_game(check)
    return found


def complaints(found: dict[str, str | None]) -> list[str]:
    """What Atari lacks, with what to do about it."""
    missing = [name for name in ATARI_MODULES if found[name] is None]
    return [f"Atari needs {', '.join(missing)}: pip install 'tremble[atari]'"] if missing else []
