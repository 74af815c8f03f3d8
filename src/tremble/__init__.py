"""tremble: distributional reinforcement learning with randomised risk criteria.

Importing the package registers its environments with Gymnasium and imports no JAX: the names below are imported when
they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tremble.envs.registry import jax_env_names, load_built_in

if TYPE_CHECKING:
    from tremble import criteria, losses
    from tremble.dist import ReturnDist
    from tremble.presets import make
    from tremble.sweeps.start import run_sweep, sweep_results
    from tremble.sweeps.sweep import Search, Sweep
    from tremble.sweeps.sweep_file import read_sweep
    from tremble.training.compilation_cache import enable_compilation_cache
    from tremble.training.evaluation import Evaluation, evaluate
    from tremble.training.many import train_many
    from tremble.training.result import Run
    from tremble.training.run import resume, train
    from tremble.training.trained import TrainedAgent, load

    __version__: str

_MODULES = {
    "ReturnDist": "tremble.dist",
    "Evaluation": "tremble.training.evaluation",
    "Run": "tremble.training.result",
    "Search": "tremble.sweeps.sweep",
    "Sweep": "tremble.sweeps.sweep",
    "TrainedAgent": "tremble.training.trained",
    "enable_compilation_cache": "tremble.training.compilation_cache",
    "evaluate": "tremble.training.evaluation",
    "load": "tremble.training.trained",
    "make": "tremble.presets",
    "read_sweep": "tremble.sweeps.sweep_file",
    "resume": "tremble.training.run",
    "run_sweep": "tremble.sweeps.start",
    "sweep_results": "tremble.sweeps.start",
    "train": "tremble.training.run",
    "train_many": "tremble.training.many",
}
"""The module of each public name that is imported on first use."""

load_built_in()


def list_agents() -> list[str]:
    """Names that `train` and the command line take as an agent."""
    from tremble.presets import PRESETS

    return list(PRESETS)


def list_criteria() -> list[str]:
    """Names of the criteria an agent can act and bootstrap by, those of installed packages among them."""
    from tremble.criteria import criterion_names

    return list(criterion_names())


def list_envs() -> list[str]:
    """Names of the environments that train inside XLA; any Gymnasium id is an environment too."""
    return jax_env_names()


def list_studies() -> list[str]:
    """Names of the studies `tremble study` can run."""
    from tremble.studies import about_studies

    return list(about_studies())


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    elif name in ("criteria", "losses"):
        value = importlib.import_module(f"tremble.{name}")
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # so that the next look-up does not come here
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tremble")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"


__all__ = [
    "ReturnDist",
    "Evaluation",
    "Run",
    "Search",
    "Sweep",
    "TrainedAgent",
    "criteria",
    "enable_compilation_cache",
    "evaluate",
    "list_agents",
    "list_criteria",
    "list_envs",
    "list_studies",
    "load",
    "losses",
    "make",
    "read_sweep",
    "resume",
    "run_sweep",
    "sweep_results",
    "train",
    "train_many",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
