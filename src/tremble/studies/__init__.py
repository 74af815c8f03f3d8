"""Studies: each reproduces a figure or table of the paper, or asks a question of its own.

Importing all of them takes seconds, so names and descriptions are read from their sources, where a study is
``STUDY = Study(name, about, ...)``.
"""

from __future__ import annotations

import ast
import importlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tremble.settings import SettingsError, import_named, nearest

if TYPE_CHECKING:
    from tremble.studies.kit import Study

_NCHAIN = (
    "nchain.returns",
    "nchain.counts",
    "nchain.sensitivity",
    "nchain.variance",
    "nchain.readings",
    "nchain.family",
)
_OTHERS = ("lunarlander.study", "control.study", "control.search", "exploration.study", "minatar.study", "risk.study")
_THEORY = ("theory.study",)
_ATARI = ("atari.audit", "atari.study", "atari.curves", "atari.pong_schedules", "atari.quota")


@cache
def _modules() -> dict[str, tuple[str, str]]:
    """The module of each study, and the line about it, by name."""
    found = {}
    for module in (*_NCHAIN, *_OTHERS, *_THEORY, *_ATARI):
        source = files(__name__).joinpath(*module.split(".")[:-1], f"{module.split('.')[-1]}.py")
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["STUDY"]:
                assert isinstance(node.value, ast.Call)
                name, about = (ast.literal_eval(argument) for argument in node.value.args[:2])
                found[name] = (f"{__name__}.{module}", about)
    return found


def about_studies() -> dict[str, str]:
    """A line about each study, by name; imports none of them."""
    return {name: about for name, (_, about) in _modules().items()}


def find_study(name: str) -> Study:
    """The study of this name, or one of your own as ``module:NAME``."""
    from tremble.studies.kit import Study

    if ":" in name:
        found = import_named(name)
        if not isinstance(found, Study):
            raise SettingsError(f"{name} is no study: it must be a tremble.studies.kit.Study")
        return found
    if name not in _modules():
        raise SettingsError(f"there is no study {name!r}; {nearest(name, _modules())}")
    study: Study = importlib.import_module(_modules()[name][0]).STUDY
    return study


__all__ = ["about_studies", "find_study"]
