"""One file per figure or table of the paper: settings as data, then analysis."""

from __future__ import annotations

from tremble.studies.atari import audit as atari_audit
from tremble.studies.atari import curves as atari_curves
from tremble.studies.atari import pong_schedules, quota
from tremble.studies.atari import study as atari
from tremble.studies.control import search as control_search
from tremble.studies.control import study as control
from tremble.studies.exploration import study as exploration
from tremble.studies.kit import Study
from tremble.studies.lunarlander import study as lunarlander
from tremble.studies.minatar import study as minatar
from tremble.studies.nchain import counts as nchain_counts
from tremble.studies.nchain import family as nchain_family
from tremble.studies.nchain import readings as nchain_readings
from tremble.studies.nchain import returns as nchain_returns
from tremble.studies.nchain import sensitivity as nchain_sensitivity
from tremble.studies.nchain import variance as nchain_variance
from tremble.studies.risk import study as risk
from tremble.studies.theory import study as theory

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        nchain_returns.STUDY,
        nchain_counts.STUDY,
        nchain_sensitivity.STUDY,
        nchain_variance.STUDY,
        nchain_readings.STUDY,
        nchain_family.STUDY,
        lunarlander.STUDY,
        control.STUDY,
        control_search.STUDY,
        exploration.STUDY,
        minatar.STUDY,
        risk.STUDY,
        theory.STUDY,
        atari_audit.STUDY,
        atari.STUDY,
        atari_curves.STUDY,
        pong_schedules.STUDY,
        quota.STUDY,
    )
}
"""Studies by name."""

__all__ = ["STUDIES", "Study"]
