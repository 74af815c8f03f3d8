"""What to say about an id that nobody has registered."""

from __future__ import annotations

import re
from importlib.metadata import distributions

import gymnasium

from tremble import escape
from tremble.envs.registry import jax_env_names
from tremble.settings import SettingsError, nearest


def refuse_unknown(env: str) -> None:
    """Raise unless Gymnasium knows the id, or it names a package that Gymnasium is to import first."""
    if env in gymnasium.registry or ":" in env:
        return
    namespace = env[: env.find("/") + 1]
    there = namespace != "" and any(name.startswith(namespace) for name in gymnasium.registry)
    if not there and (packages := likely_packages(env)):
        package = packages[0]
        hint = f"the installed package {package} may register it when it is imported: {package}:{env}"
    else:
        hint = nearest(env, [*jax_env_names(), *gymnasium.registry])
        if not hint.startswith("did"):
            hint = (
                "give one of `tremble list`, a Gymnasium id, or module:Class. If a package registers it when it is "
                f"imported, name that before the id: PACKAGE:{env}"
            )
    raise SettingsError(f"there is no environment {env!r}; {escape.plain(hint)}")


def likely_packages(env: str) -> list[str]:
    """Installed packages that need Gymnasium and have a name like an id's first word; nothing is imported."""
    word = _letters(re.split(r"[-/]", env)[0])
    found = []
    for distribution in distributions():
        needs = [re.split(r"[^\w.-]", need.strip())[0].lower() for need in distribution.requires or ()]
        if "gymnasium" not in needs or distribution.name.lower() == "gymnasium":
            continue
        modules = (distribution.read_text("top_level.txt") or distribution.name.replace("-", "_")).split()
        found += [module for module in modules if module.isidentifier() and _alike(word, _letters(module))]
    return sorted(found)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _alike(word: str, module: str) -> bool:
    """Whether one begins with the other, as in highway and highway_env; two letters say nothing."""
    return min(len(word), len(module)) > 2 and (word.startswith(module) or module.startswith(word))
