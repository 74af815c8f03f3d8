"""Names of environments, and what the names stand for.

The library imports no environment. Modules that provide some (`tremble.worlds`, `tremble.atari`, and those of installed
packages) call the ``register_...`` functions below; `load_plugins` imports them when a name is first looked up. An
environment may be registered as ``module:name``, which is imported when it is made, so that listing names needs no JAX.

An installed package registers its own environments with an entry point of the group ``tremble.environments`` whose
value is a module; importing that module must call the functions below.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from tremble.settings import SettingsError, import_named, nearest, override, reference

if TYPE_CHECKING:
    from tremble.core import JaxEnv

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
    """(name, number, options) -> an `envs.gym.Environment` that steps all of them, or None for the default one."""


_JAX_ENVS: dict[str, tuple[str | Callable[..., JaxEnv], dict[str, Any]]] = {}
_ABOUT: dict[str, str] = {}
_BENCHMARKS: list[Benchmark] = []


def register_jax_env(name: str, make: str | Callable[..., JaxEnv], about: str = "", **settings: Any) -> None:
    """Register an environment written in JAX: its class, a function that makes it, or ``module:name`` of either.

    ``about`` is a line for `tremble list`. ``settings`` are keyword arguments of ``make``; options of the environment
    are the fields of what it makes.
    """
    _JAX_ENVS[name] = (make, settings)
    _ABOUT[name] = about or f"of {make if isinstance(make, str) else reference(make)}"


def register_gymnasium_env(name: str, entry_point: str, **settings: Any) -> None:
    """Register ``module:name`` with Gymnasium, unless the id is registered already."""
    import gymnasium

    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point, **settings)


def register_benchmark(benchmark: Benchmark) -> None:
    """Apply a benchmark's rules to all environments whose name begins with its prefix."""
    _BENCHMARKS.append(benchmark)


def load_built_in() -> None:
    """Register the environments that ship with the library, with Gymnasium too; imports no JAX."""
    for module in BUILT_IN:
        importlib.import_module(module)


@cache
def load_plugins() -> None:
    """Import every module that registers something, once."""
    load_built_in()
    for point in entry_points(group=GROUP):
        try:
            importlib.import_module(point.value)
        except Exception as error:  # any fault of the other package
            raise SettingsError(
                f"the environments of an installed package ({point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error


def jax_env_names() -> list[str]:
    """Names of the environments that train inside XLA."""
    load_plugins()
    return list(_JAX_ENVS)


def about_jax_envs() -> dict[str, str]:
    """A line about each of them."""
    load_plugins()
    return {name: _ABOUT[name] for name in _JAX_ENVS}


def is_jax_env(name: str) -> bool:
    """Whether a name stands for an environment written in JAX."""
    load_plugins()
    return name in _JAX_ENVS


def make_jax_env(name: str, options: Mapping[str, Any]) -> JaxEnv:
    """An environment written in JAX, some of its fields changed."""
    if not is_jax_env(name):
        raise SettingsError(f"there is no environment {name!r} written in JAX; {nearest(name, _JAX_ENVS)}")
    make, settings = _JAX_ENVS[name]
    found = import_named(make) if isinstance(make, str) else make
    return override(found(**settings), options)  # type: ignore[type-var]


def benchmark_of(name: str) -> Benchmark | None:
    """The benchmark an environment belongs to, if any."""
    load_plugins()
    return next((benchmark for benchmark in _BENCHMARKS if name.startswith(benchmark.prefix)), None)
