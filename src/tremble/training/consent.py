"""Code that a run directory names is imported only with consent.

A run may have been trained with an environment, a criterion or a function of somebody's own, which its files name as
``module:name``; Gymnasium's ``package:Id-v0`` imports a package too. Importing executes code, so nothing that only a
run directory names is imported unless the caller says so (``trust_code=True``, ``--trust-code``). Names registered by
installed packages are excepted. Whoever names the code in a call of their own has consented by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tremble import escape
from tremble.envs.registry import is_jax_env
from tremble.records import CheckpointError
from tremble.settings import describe
from tremble.training.spec import RunSpec


class UntrustedCodeError(CheckpointError):
    """A run names code to import, and nobody consented to it; the message says which."""


def code_of_agent(spec: RunSpec, recorded: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a run's agent whose values name code, by setting; ``recorded`` are those in its file.

    Where the options name no code, a recorded setting counts only if it differs from what the agent's name stands for:
    only then would it be imported.
    """
    named = dict(_names(spec.agent_options))
    if named or ":" in spec.agent:
        return named | ({"agent": spec.agent} if ":" in spec.agent else {})
    different = set(_names(recorded)) - set(_names(describe(spec.build_agent())))
    return dict(sorted(different))


def code_of_environment(spec: RunSpec) -> dict[str, str]:
    """The same for the environment. Options of Gymnasium environments are data, which only the environment reads."""
    other = dict(_names({"evaluate_env": spec.evaluate_env}))
    if is_jax_env(spec.env):
        return other | {f"env.{name}": value for name, value in _names(spec.env_options)}
    return other | dict(_names({"env": spec.env}))


def require_consent(source: Path, named: Mapping[str, str], trust_code: bool) -> None:
    """Raise unless there is nothing to import or the caller trusts it."""
    if named and not trust_code:
        listed = ", ".join(f"{escape.plain(name)}={escape.plain(value)}" for name, value in named.items())
        raise UntrustedCodeError(
            f"{source} names code to import: {listed}. Importing executes it. If you trust where the run comes from: "
            "--trust-code on the command line, trust_code=True in Python"
        )


def _names(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Everything in a tree of settings that could be ``module:name``, with where it stands."""
    if isinstance(value, str) and ":" in value:
        yield path, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _names(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _names(part, f"{path}.{number}")
