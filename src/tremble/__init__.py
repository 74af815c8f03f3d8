"""tremble: distributional reinforcement learning with randomised risk criteria."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tremble import criteria, losses
from tremble.dist import ReturnDist
from tremble.envs.registry import jax_envs, load_plugins
from tremble.presets import make
from tremble.training.evaluation import Evaluation, evaluate
from tremble.training.many import train_many
from tremble.training.run import Run, resume, train
from tremble.training.trained import TrainedAgent, load

try:
    __version__ = version("tremble")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"


load_plugins()


def list_agents() -> list[str]:
    """Names that `train` and the command line take as an agent."""
    from tremble.presets import PRESETS

    return list(PRESETS)


def list_criteria() -> list[str]:
    """Names of the criteria an agent can act and bootstrap by, those of installed packages among them."""
    return list(criteria.criterion_names())


def list_envs() -> list[str]:
    """Names of the environments that train inside XLA; any Gymnasium id is an environment too."""
    return list(jax_envs())


def list_studies() -> list[str]:
    """Names of the studies `tremble study` can run."""
    from tremble.studies import STUDIES

    return list(STUDIES)


__all__ = [
    "ReturnDist",
    "Evaluation",
    "Run",
    "TrainedAgent",
    "criteria",
    "evaluate",
    "list_agents",
    "list_criteria",
    "list_envs",
    "list_studies",
    "load",
    "losses",
    "make",
    "resume",
    "train",
    "train_many",
]


def __dir__() -> list[Any]:
    return [*__all__, "__version__"]
