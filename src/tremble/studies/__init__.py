"""Studies: each reproduces a figure or table of the paper, or asks a question of its own."""

from __future__ import annotations

from tremble.settings import SettingsError, import_named, nearest
from tremble.studies.atari import audit, curves, pong_schedules, quota
from tremble.studies.atari import study as atari
from tremble.studies.control import search as control_search
from tremble.studies.control import study as control
from tremble.studies.exploration import study as exploration
from tremble.studies.kit import Study
from tremble.studies.lunarlander import study as lunarlander
from tremble.studies.minatar import study as minatar
from tremble.studies.nchain import counts, family, readings, returns, sensitivity, variance
from tremble.studies.risk import study as risk
from tremble.studies.theory import study as theory

_NCHAIN = (returns, counts, sensitivity, variance, readings, family)
_OTHERS = (lunarlander, control, control_search, exploration, minatar, risk, theory)
_ATARI = (audit, atari, curves, pong_schedules, quota)
STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in (*_NCHAIN, *_OTHERS, *_ATARI)}
"""Studies by name."""


def find_study(name: str) -> Study:
    """The study of this name, or one of your own as ``module:NAME``."""
    if ":" in name:
        found = import_named(name)
        if not isinstance(found, Study):
            raise SettingsError(f"{name} is no study: it must be a tremble.studies.kit.Study")
        return found
    if name not in STUDIES:
        raise SettingsError(f"there is no study {name!r}; {nearest(name, STUDIES)}")
    return STUDIES[name]


__all__ = ["STUDIES", "Study", "find_study"]
