"""A quick version says that it is no result and judges nothing, whatever the numbers are."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console
from study_makers import finish

from tremble.report.statistics import Interval, direction, verdict
from tremble.studies import find_study
from tremble.studies.kit import Options, Study, run_study
from tremble.studies.minatar.study import MinAtarResult
from tremble.studies.nchain.result import NChainResult
from tremble.worlds.nchain import NChain

WORDS = {"reproduced", "not reproduced", "inconclusive", "helps", "hurts", "no difference shown", "no trend found"}
WORDS |= {"supported", "contradicted", "rises", "yes", "no", "holds"}
LEVEL = {"pqr": 900, "qrdqn": 500, "dltv": 100}
"""Numbers so far apart that every comparison would be decided."""


def level(seed, spec):
    return LEVEL.get(spec.agent, 300) + seed


def nchain(seed, spec):
    steps = np.array([spec.steps])
    counts = np.array([level(seed, spec)])
    return NChainResult(seed, steps, counts, counts, np.zeros((6, 4)), 0.5, NChain(), 0.9)


def minatar(seed, spec):
    return MinAtarResult(seed, np.arange(1, 41) * 100.0, np.full(40, 1.0), np.full(100, float(level(seed, spec))))


MADE = {
    "nchain-counts": nchain,
    "nchain-variance": nchain,
    "nchain-family": nchain,
    "nchain-readings": nchain,
    "minatar": minatar,
    "control": None,
}
"""What is loaded of a run, made up; where that is the run itself, its files are."""
QUICK = ("nchain-counts", "control")
"""Studies of few cells; building the agents of many takes seconds."""
STUDIES_MADE = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MADE]


def report_of(name, tmp_path, quick):
    """The report by `run_study`, from a store in which every run is finished."""
    study, made = find_study(name), MADE[name]
    if made is not None:
        study = dataclasses.replace(study, load=lambda run: made(run.seed, run.spec))
    study = dataclasses.replace(study, search=None)
    options = Options(tmp_path / "out", tmp_path / "store", 4, study.quick_steps, quick, report_only=True)
    for _, run in study.runs(options):
        finish(run, [(100, 1.0), (200, 2.0)], final=np.full(4, float(level(run.spec.seed, run.spec))))
    return run_study(study, options, Console(quiet=True)).read_text()


def judged(report):
    """Verdicts in the cells of tables; headings are none."""
    rows = [line.split("|")[2:] for line in report.splitlines() if line.startswith("| ") and "difference |" not in line]
    return WORDS & {cell.strip(" *").rpartition(": ")[2] for row in rows for cell in row}


@pytest.mark.parametrize("name", STUDIES_MADE)
def test_a_quick_report_is_no_result_and_has_no_verdicts(name, tmp_path):
    report = report_of(name, tmp_path, quick=True)
    assert report.startswith("> **This is not a result.**") and "without `--quick`" in report.split("\n\n")[0]
    assert not judged(report) and "no verdict" in report


@pytest.mark.parametrize("name", [made for made in STUDIES_MADE if made.values != ("nchain-family",)])
def test_the_study_itself_has_verdicts(name, tmp_path):
    report = report_of(name, tmp_path, quick=False)
    assert report.startswith("# ") and "not a result" not in report
    assert judged(report) and "no verdict" not in report


@pytest.mark.parametrize("low, high", [(20, 60), (-60, -20), (-50, 70)])
def test_the_rule(low, high):
    found = Interval((low + high) / 2, low, high, 2)
    assert (
        verdict(found, 100.0, quick=True) == verdict(found, quick=True) == direction(found, quick=True) == "no verdict"
    )


def test_a_study_that_computes_everything_anyway_has_no_quick_version(tmp_path):
    told = []
    study = Study("whole", "", lambda options: [], lambda results, options: told.append(options.quick) or "# Whole\n")
    options = Options(tmp_path / "out", tmp_path / "store", 2, 1000, quick=True)
    assert run_study(study, options, Console(quiet=True)).read_text().startswith("> **This is not")
    study = dataclasses.replace(study, has_quick_version=False)
    assert run_study(study, options, Console(quiet=True)).read_text() == "# Whole\n"
    assert told == [True, False] and not find_study("atari-audit").has_quick_version


@pytest.mark.long
@pytest.mark.parametrize("name", ["theory", "risk"])
def test_quick_reports_of_studies_without_stored_runs(name, tmp_path):
    """By the command: stacks of finite MDPs do not have the shapes that tests check."""
    command = [sys.executable, "-m", "tremble.cli.main", "study", name, "--quick"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr
    report = (tmp_path / "runs" / f"{name}-quick" / "report.md").read_text()
    assert report.startswith("> **This is not a result.**") and not judged(report) and "## Verdicts" not in report
