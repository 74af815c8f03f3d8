"""Whether Atari is installed, and whether the games of the paper play as they should."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremble.atari.games import PAPER_GAMES, id_of

MODULES = {"ale-py": "ale_py", "OpenCV": "cv2", "Pillow": "PIL"}
"""What Atari needs, by the modules: OpenCV comes in packages of several names."""


def atari_versions() -> dict[str, str | None]:
    """Versions of what Atari needs; None where it is not installed."""
    found: dict[str, str | None] = {}
    for name, module in MODULES.items():
        try:
            found[name] = str(getattr(importlib.import_module(module), "__version__", "installed"))
        except ImportError:
            found[name] = None
    return found


def complaints(found: dict[str, str | None]) -> list[str]:
    """What Atari lacks, with what to do about it."""
    missing = [name for name in MODULES if found[name] is None]
    return [f"Atari needs {', '.join(missing)}: pip install 'tremble[atari]'"] if missing else []


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
