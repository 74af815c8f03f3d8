"""Axis B: from a return distribution to one score per action."""

from __future__ import annotations

from tremble.criteria.base import Criterion, RiskMeasure
from tremble.criteria.catalogue import CRITERIA, criterion_names, make_criterion
from tremble.criteria.distortion import CustomDistortion, Distortion
from tremble.criteria.heads import MajorityVote, RandomAtom
from tremble.criteria.mean import Mean
from tremble.criteria.measures import CPW, CVaR, Norm, Power, VaR, Wang
from tremble.criteria.optimism import Optimism
from tremble.criteria.perturbed import Perturbed, perturbation, sample_dirichlet, sample_perturbation
from tremble.criteria.robust import WorstCase
from tremble.criteria.utility import MeanVariance, Utility

__all__ = [
    "CRITERIA",
    "criterion_names",
    "make_criterion",
    "Criterion",
    "RiskMeasure",
    "Mean",
    "Optimism",
    "Perturbed",
    "Distortion",
    "CVaR",
    "VaR",
    "Wang",
    "CPW",
    "Power",
    "Norm",
    "CustomDistortion",
    "MeanVariance",
    "Utility",
    "WorstCase",
    "RandomAtom",
    "MajorityVote",
    "perturbation",
    "sample_dirichlet",
    "sample_perturbation",
]
