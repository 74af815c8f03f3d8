"""An episode as a video: what the agent sees, beside the returns it predicts for every action."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib
import numpy as np

from tremble import escape
from tremble.core import RandomStream, stream_key
from tremble.envs.gym import name_of
from tremble.envs.masks import INFO_ACTION_MASK, check_masks, stack_masks
from tremble.extras import pip_line
from tremble.settings import SettingsError
from tremble.training.evaluation_env import evaluation_maker, prepare
from tremble.training.gym_loop import env_seed
from tremble.training.spec import RunSpec
from tremble.training.trained import Policy, TrainedAgent

matplotlib.use("Agg")
import jax
import matplotlib.pyplot as plt

COLOURS = ("#2a6f97", "#d1495b", "#e09f3e", "#5b8c5a", "#7b5ea7", "#6b7280")
FORMATS = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio",)}
"""Endings of a video's file, and the modules that write it."""
SIZE = (10.08, 4.48)
"""Hundreds of pixels; codecs want multiples of 16."""
NO_WINDOW = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
"""For pygame, in which most environments draw: no display is needed for pictures, but some look for one."""


@dataclass(frozen=True)
class Scene:
    """One moment: the picture, ``atoms[actions, n]``, the action taken, and the return so far."""

    frame: np.ndarray
    atoms: np.ndarray
    action: int
    total: float


def check_format(path: Path) -> None:
    """Raise unless a video can be written to such a file with what is installed."""
    if path.suffix not in FORMATS:
        raise SettingsError(f"a video is an {' or a '.join(FORMATS)} file, not {escape.plain(path.name)!r}")
    missing = [module for module in FORMATS[path.suffix] if find_spec(module) is None]
    if missing:
        raise SettingsError(f"videos need {' and '.join(missing)}: {pip_line('video')}")


def open_for_pictures(spec: RunSpec) -> gymnasium.Env[Any, Any]:
    """The environment of a run's evaluation, made to draw pictures of itself."""
    for name, value in NO_WINDOW.items():
        os.environ.setdefault(name, value)
    plain = evaluation_maker(spec, spec.env)()
    modes = plain.metadata.get("render_modes") or []
    plain.close()
    if "rgb_array" not in modes:
        raise SettingsError(
            f"{spec.env} draws no pictures: 'rgb_array' is not among its render modes, which are "
            f"{', '.join(map(str, modes)) or 'none'} (metadata['render_modes'])"
        )
    return evaluation_maker(spec, spec.env, options={"render_mode": "rgb_array"})()


def picture_of(env: gymnasium.Env[Any, Any]) -> np.ndarray:
    """What the environment looks like now ``[height, width, 3]``."""
    try:
        frame = env.render()
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        extra = "box2d,video" if "box2d" in str(error).lower() else "video"
        reason = " ".join(str(error).split())
        raise SettingsError(f"{name_of(env)} cannot be drawn: {pip_line(extra)} ({reason})") from error
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise SettingsError(f"{name_of(env)} draws no pictures: render() returned {type(frame).__name__}")
    return frame


def play(
    agent: TrainedAgent,
    env: gymnasium.Env[Any, Any],
    *,
    policy: Policy,
    seed: int,
    max_steps: int,
) -> list[Scene]:
    """Act in the first evaluation episode of a seed, in an environment made with ``render_mode="rgb_array"``."""
    name = name_of(env)
    prepare(env, name, agent.encoder, agent.actions, agent.statistics)
    actors = policy.init_actors(1)
    obs, info = env.reset(seed=env_seed(seed, RandomStream.EVALUATE, 0))
    masked = INFO_ACTION_MASK in info
    scenes: list[Scene] = []
    total, over = 0.0, False
    while not over and len(scenes) < max_steps:
        frame = picture_of(env)
        encoded = agent.encoder(obs)[None]
        key = jax.random.fold_in(stream_key(seed, RandomStream.EVALUATE, 0), len(scenes))
        masks = stack_masks([info.get(INFO_ACTION_MASK)], agent.actions)
        check_masks(masks, masked, name, f"at step {len(scenes) + 1}")
        chosen, actors = policy.act(actors, encoded, masks, key[None])
        action = int(np.asarray(chosen)[0])
        scenes.append(Scene(frame, np.asarray(agent.predict_encoded(encoded).atoms[0]), action, total))
        obs, reward, terminated, truncated, info = env.step(agent.actions.own(action))
        total, over = total + float(reward), bool(terminated or truncated)
    return scenes


def _range_of(atoms: np.ndarray) -> tuple[float, float]:
    """Where nearly all of the predicted returns are; those of an agent that has diverged may not be finite."""
    finite = atoms[np.isfinite(atoms)]
    if not len(finite):
        raise SettingsError("none of the returns that the agent predicts is finite: its training has diverged")
    return float(np.quantile(finite, 0.001)), float(np.quantile(finite, 0.999))


def write_video(
    scenes: Sequence[Scene],
    path: Path,
    *,
    fps: int = 30,
    names: Sequence[str] | None = None,
    on_frame: Callable[[int], None] = lambda done: None,
) -> None:
    """Write an ``.mp4`` or ``.gif``: the frame on the left, the distributions as rising curves on the right.

    A curve is the quantile function turned on its side, the share of returns at or below each value: unlike a density
    it needs no smoothing, so what is shown is what is predicted.
    """
    check_format(path)
    import imageio.v2 as imageio

    atoms = np.stack([np.sort(scene.atoms, axis=-1) for scene in scenes])
    n_actions, n = atoms.shape[1:]
    names = names or [f"action {a}" for a in range(n_actions)]
    low, high = _range_of(atoms)
    levels = (np.arange(n) + 0.5) / n
    figure, (left, right) = plt.subplots(1, 2, figsize=SIZE, dpi=100, layout="constrained")
    left.axis("off")
    picture = left.imshow(scenes[0].frame)
    curves, means = [], []
    for a in range(n_actions):
        colour = COLOURS[a % len(COLOURS)]
        curves.append(right.plot([], [], color=colour, label=escape.figure(names[a]), drawstyle="steps-mid")[0])
        means.append(right.axvline(0, color=colour, linestyle=":", linewidth=1.2))
    pad = 0.05 * max(high - low, 1e-6)
    right.set(
        xlim=(low - pad, high + pad), ylim=(0, 1), xlabel="discounted return from here", ylabel="share at or below"
    )
    right.legend(loc="upper left", frameon=False)
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"fps": fps} if path.suffix == ".mp4" else {"duration": 1000 / fps, "loop": 0}
    writer: Any
    with warnings.catch_warnings(), imageio.get_writer(path, **options) as writer:
        # The writer starts ffmpeg. JAX warns of every fork, also of one that at once becomes another program.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        for k, scene in enumerate(scenes):
            picture.set_data(scene.frame)
            for a in range(n_actions):
                taken = a == scene.action
                curves[a].set_data(atoms[k, a], levels)
                curves[a].set(linewidth=3.0 if taken else 1.3, alpha=1.0 if taken else 0.6)
                means[a].set_xdata([scene.atoms[a].mean()] * 2)
            right.set_title(
                f"step {k}   takes {escape.figure(names[scene.action])}   return so far {scene.total:.1f}", fontsize=10
            )
            figure.canvas.draw()
            image = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
            writer.append_data(image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2])
            on_frame(k + 1)
    plt.close(figure)
