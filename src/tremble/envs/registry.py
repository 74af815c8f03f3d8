"""What the name of an environment stands for.

The library imports no environment: worlds, Atari and installed packages register here, and the modules that do so are
imported when a name is first looked up. A package registers its own by an entry point of the group
``tremble.environments`` whose value is a module; importing the module must call the functions below.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from tremble.core import JaxEnv
from tremble.settings import SettingsError, nearest, override

BUILT_IN = ("tremble.worlds", "tremble.atari")
GROUP = "tremble.environments"


@dataclass(frozen=True)
class Benchmark:
    """Environments with rules of their own for training and evaluation, such as Atari's games under a protocol."""

    prefix: str
    """How the names of its environments begin: ``atari/``."""
    default_protocol: str
    """The protocol where none is named (the environment's option ``protocol``)."""
    evaluation_options: Mapping[str, Any]
    """Options of environments that are made for evaluation."""
    evaluation_rules: Callable[[str, str], dict[str, Any]]
    """(protocol, agent) -> keyword arguments of `tremble.evaluate`."""
    open_vector: Callable[[str, int, dict[str, Any]], Any]
    """(name, number, options) -> an `envs.gym.Environment` that steps all of them, or None for the ordinary way."""


_JAX_ENVS: dict[str, Callable[..., JaxEnv]] = {}
_BENCHMARKS: list[Benchmark] = []


def register_jax_env(name: str, make: Callable[..., JaxEnv]) -> None:
    """Let ``name`` stand for an environment written in JAX; keyword arguments of ``make`` are its fields."""
    _JAX_ENVS[name] = make


def register_benchmark(benchmark: Benchmark) -> None:
    """Let names that begin with the benchmark's prefix follow its rules."""
    _BENCHMARKS.append(benchmark)


@cache
def load_plugins() -> None:
    """Import every module that registers something, once."""
    for module in BUILT_IN:
        importlib.import_module(module)
    for point in entry_points(group=GROUP):
        try:
            importlib.import_module(point.value)
        except Exception as error:  # whatever the other package does wrong
            raise SettingsError(
                f"the environments of an installed package ({point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error


def jax_envs() -> dict[str, Callable[..., JaxEnv]]:
    """Environments that train inside XLA, by name."""
    load_plugins()
    return dict(_JAX_ENVS)


def is_jax_env(name: str) -> bool:
    """Whether a name stands for an environment written in JAX."""
    load_plugins()
    return name in _JAX_ENVS


def make_jax_env(name: str, options: Mapping[str, Any]) -> JaxEnv:
    """An environment written in JAX, some of its fields changed."""
    if not is_jax_env(name):
        raise SettingsError(f"there is no environment {name!r} written in JAX; {nearest(name, _JAX_ENVS)}")
    return override(_JAX_ENVS[name](), options)  # type: ignore[type-var]


def benchmark_of(name: str) -> Benchmark | None:
    """The benchmark an environment belongs to, if any."""
    load_plugins()
    return next((benchmark for benchmark in _BENCHMARKS if name.startswith(benchmark.prefix)), None)
