"""Optional packages: what each extra enables, and the modules it brings."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Extra:
    """An entry of ``[project.optional-dependencies]``."""

    enables: str
    modules: tuple[str, ...]
    """What is imported, which may be called otherwise than the package that has it."""

    def missing(self) -> list[str]:
        """The modules that are not installed; imports none of them."""
        return [module for module in self.modules if find_spec(module) is None]


EXTRAS = {
    "box2d": Extra("LunarLander and the other environments of Box2D", ("Box2D", "pygame")),
    "atari": Extra("the 57 games of Atari", ("ale_py", "cv2", "PIL")),
    "video": Extra("tremble video", ("imageio", "imageio_ffmpeg", "pygame")),
    "tracking": Extra(
        "--track tensorboard, wandb, mlflow, trackio",
        ("tensorboardX", "wandb", "mlflow", "sqlalchemy", "alembic", "trackio"),
    ),
    "search": Extra("searches by Optuna in a sweep", ("optuna",)),
    "results": Extra("Parquet and SQL over the results of a sweep", ("duckdb",)),
    "ray": Extra("sweeps on a Ray cluster", ("ray",)),
}
"""By name; `dev` is for those who work on the library."""


def pip_line(*names: str) -> str:
    """The pip command that installs them."""
    return f"pip install 'tremble[{','.join(names)}]'"
