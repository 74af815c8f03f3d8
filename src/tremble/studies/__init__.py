"""One file per figure or table of the paper: settings as data, then analysis."""

from __future__ import annotations

from tremble.studies import (
    atari,
    atari_audit,
    atari_curves,
    control,
    control_search,
    exploration,
    lunarlander,
    minatar,
    nchain_counts,
    nchain_family,
    nchain_readings,
    nchain_returns,
    nchain_sensitivity,
    nchain_variance,
    pong_schedules,
    quota,
    risk,
    theory,
)
from tremble.studies.runner import Study

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
