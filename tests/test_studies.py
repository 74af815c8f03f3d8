"""Studies are sweeps with an analysis: every cell is a run that could start, runs are shared, gaps are named."""

import csv
import dataclasses
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from study_makers import final_row, finish, runs_of
from sweep_makers import write_rows

from tremble.records import CheckpointError
from tremble.studies import about_studies, find_study
from tremble.studies.kit import Options, Study, collect, run_study, train
from tremble.studies.nchain.result import load_result
from tremble.studies.parts import difference, draw_seeds, over_seeds, write_curves, write_runs
from tremble.sweep_records import Cell
from tremble.sweeps.finished_run import finished_run
from tremble.sweeps.folder import SweepFolder
from tremble.sweeps.local import SweepError

ROOT = Path(__file__).parents[1]
TINY = {"n_quantiles": 4, "widths": [4], "batch_size": 4, "start_steps": 20}


def quiet():
    return Console(file=io.StringIO(), width=200)


@pytest.mark.parametrize("quick", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n == "nchain-family" else n for n in about_studies()]
)
def test_every_cell_is_a_valid_run(name, quick, tmp_path):
    study = find_study(name)
    options = Options(tmp_path, tmp_path / "store", 2, study.quick_steps if quick else study.steps, quick)
    cells, runs = study.cells(options), runs_of(study, options)
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == len(labels) and len(runs) == 2 * len(labels)
    assert bool(cells) == (name not in ("theory", "atari-audit"))
    assert {run.directory.name for run in runs.values()} <= {f"seed-{study.first_seed + k}" for k in (0, 1)}
    # One of several environments with equal settings is enough: games under one protocol have the same agent.
    specs = [run.spec for run in runs.values()]
    different = {(s.agent, str(s.agent_options), s.hyperparameters, s.protocol or s.env): s for s in specs}
    for spec in different.values():
        assert spec.build_agent().learning.start_steps < options.steps


def small(**changes):
    """A study of two cells."""

    def cells(options):
        return [Cell(f"rate {rate}", "qrdqn", agent_options=TINY | {"learning_rate": rate}) for rate in (1e-3, 1e-4)]

    made = Study("small", "", cells, lambda results, options: f"{[len(runs) for runs in results.values()]}", seeds=2)
    return dataclasses.replace(made, **changes)


def options_in(directory, **changes):
    return dataclasses.replace(Options(directory / "out", directory / "store", 2, 60, jobs=1), **changes)


@pytest.mark.slow
def test_a_study_leaves_a_sweep_and_goes_on_from_it(tmp_path):
    study, options = small(load=load_result), options_in(tmp_path)
    assert run_study(study, options, quiet()).read_text() == "[2, 2]"
    folder = SweepFolder(options.out)
    data = folder.data()
    assert folder.runs_directory == options.store and data.name == "small"
    assert [run.state for run in data.runs] == ["finished"] * 4
    console = quiet()
    results = collect(study, options)
    assert [run.count for run in results["rate 0.001"]] == [
        int(run.run.log["optimal"].sum()) for run in results["rate 0.001"]
    ]
    run_study(study, dataclasses.replace(options, seeds=3, out=tmp_path / "other"), console)
    assert "6 runs, 4 already done, 2 to train" in console.file.getvalue(), "another study shares its runs"


@pytest.mark.slow
def test_a_search_comes_first_and_is_a_sweep_of_its_own(tmp_path):
    searched = []

    def cells(options):
        return [Cell("chosen", "qrdqn", agent_options=TINY)]

    search = small(name="search", seeds=1, first_seed=7)
    study = Study("main", "", cells, lambda results, options: searched.append(1) or "report", search=search)
    options = options_in(tmp_path, seeds=1)
    run_study(study, options, quiet())
    assert sorted(path.stem for path in options.store.glob("*/*.json") if path.is_file()) == [
        "seed-0",
        "seed-7",
        "seed-7",
    ]
    assert (options.out / "search" / "sweep.json").exists() and searched == [1]


def test_runs_of_other_lengths_are_others(tmp_path):
    """With one store for all studies a quick version must not get, or lengthen, a run of the study itself."""
    long, short = (runs_of(small(), options_in(tmp_path, steps=steps)) for steps in (60, 30))
    assert not {run.directory for run in long.values()} & {run.directory for run in short.values()}


def test_runs_without_a_result_are_named(tmp_path):
    study, options = small(), options_in(tmp_path)
    runs = runs_of(study, options)
    for run in runs.values():
        finish(run)
    finish(runs["rate 0.001", 1], state="failed")
    with pytest.raises(SweepError, match=r"1 runs of small have no result:\nrate 0.001, seed 1: failed"):
        train(study, options, quiet())
    train(dataclasses.replace(study, partial=True), options, quiet())
    assert [len(found) for found in collect(study, options).values()] == [1, 2]
    # A run that ended in numbers that are not finite has a result.
    finish(runs["rate 0.001", 1], state="diverged")
    train(study, options, quiet())
    assert [len(found) for found in collect(study, options).values()] == [2, 2]


def test_a_report_without_runs_is_refused(tmp_path):
    study, options = small(), options_in(tmp_path, report_only=True)
    with pytest.raises(
        CheckpointError, match=r"no finished runs for rate 0.001, rate 0.0001: give the study more time"
    ):
        run_study(study, options, quiet())
    finish(runs_of(study, options)["rate 0.001", 0])
    with pytest.raises(CheckpointError, match=r"no finished runs for rate 0\.0001:"):
        run_study(study, options, quiet())
    assert run_study(dataclasses.replace(study, partial=True), options, quiet()).read_text() == "[1, 0]"


def test_what_a_finished_run_holds(tmp_path):
    run = runs_of(small(), options_in(tmp_path))["rate 0.001", 1]
    assert finished_run(run) is None
    finish(run, [(20, 5.0), (40, 9.0), (60, 7.0)], [(30, 1.0)], [6.0, 8.0], seconds=3.5)
    found = finished_run(run)
    assert (found.seed, found.seconds, found.spec.steps) == (1, 3.5, 60)
    assert found.evaluated_at.tolist() == [20, 40, 60] and found.evaluated_means.tolist() == [5.0, 9.0, 7.0]
    assert found.final.mean == 7.0 and found.final.std == 1.0 and found.best is found.final and found.best_step == 60
    # Older evaluations of a run that was made longer do not count; numbers that were not finite are NaN.
    lost = final_row(60, [1.0, 3.0]) | {"predicted": [[None, 1.0]] * 2, "calibration": {"w1": None}}
    write_rows(run.directory, "final", [final_row(40, [9.0]), lost, final_row(60, [4.0, 4.0], "best", 40)])
    found = finished_run(run)
    assert found.final.mean == 2.0 and found.best.mean == 4.0 and found.best_step == 40
    assert np.isnan(found.final.predicted[0, 0]) and np.isnan(found.final.w1)
    (run.directory / "final.jsonl").unlink()
    with pytest.raises(CheckpointError, match="has no evaluation after training"):
        finished_run(run).final  # noqa: B018


@dataclasses.dataclass
class Made:
    seed: int
    score: float
    at: tuple = (10, 20)
    curve: tuple = (1.0, np.nan)


def test_parts_of_analyses(tmp_path):
    first, second = [Made(0, 3.0), Made(1, 5.0)], [Made(1, 4.0), Made(2, 9.0)]
    assert over_seeds(first, "score").estimate == 4.0 and difference(first, second, "score").estimate == 1.0
    write_runs(tmp_path / "runs.csv", {"a | b": first}, {"x": "score:.1f"}, ["one", "two"])
    assert (tmp_path / "runs.csv").read_text() == "one,two,seed,x\na,b,0,3.0\na,b,1,5.0\n"
    write_curves(tmp_path / "curves.csv", {"a": second[:1]}, "at", {"y": "curve:.2f"})
    assert (tmp_path / "curves.csv").read_text() == "cell,seed,step,y\na,1,10,1.00\na,1,20,\n"


def test_curves_begin_where_a_seed_has_a_value():
    from tremble.report import figures

    figure, axis = figures.new()
    draw_seeds(axis, [1, 2, 3], [[np.nan, 1.0, 2.0], [np.nan, np.nan, 4.0]], "#111111")
    mean, *single = axis.lines
    assert mean.get_xdata().tolist() == [2, 3] and mean.get_ydata().tolist() == [1.0, 3.0] and len(single) == 2
    figures.plt.close(figure)


def committed(name):
    with (ROOT / "docs" / "results" / name / "counts.csv").open() as file:
        return {(row["agent"], int(row["seed"])): row for row in csv.DictReader(file)}


@pytest.mark.long
def test_the_counts_of_the_committed_report(tmp_path):
    """Trained again at full length, to the last action: on the kind of processor that the report was made on."""
    study = find_study("nchain-counts")
    chosen = [("qrdqn", 2), ("dltv", 1)]
    study = dataclasses.replace(study, cells=lambda options: [Cell(agent, agent) for agent, _ in chosen], first_seed=1)
    options = Options(tmp_path / "out", tmp_path / "store", 2, 20_000, jobs=2)
    train(study, options, quiet())
    results, rows = collect(study, options), committed("nchain-counts")
    for agent, seed in chosen:
        (run,) = (run for run in results[agent] if run.seed == seed)
        assert [run.count, run.left_count] == [int(rows[agent, seed][n]) for n in ("optimal_count", "left_count")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["nchain-counts", *(pytest.param(n, marks=pytest.mark.long) for n in ("nchain-returns", "exploration", "control"))],
)
def test_quick_studies_by_the_command(name, tmp_path):
    command = [sys.executable, "-m", "tremble.cli.main", "study", name, "--quick", "--store", str(tmp_path / "store")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr
    out = tmp_path / "runs" / f"{name}-quick"
    assert (out / "report.md").read_text().startswith("> **This is not a result.**") and (out / "sweep.json").exists()


@pytest.mark.long
def test_without_snapshots_the_trained_agent_predicts(tmp_path):
    """Prioritised replay trains in the Gymnasium loop, which logs steps but no predictions on the way."""
    agent = dict(agent_options=TINY, env_options={"time_limit": 30})
    study = small(cells=lambda o: [Cell("beside", "prioritised_dqn", **agent), Cell("inside", "qrdqn", **agent)])
    options = options_in(tmp_path, seeds=1)
    train(study, options, quiet())
    beside, inside = (load_result(runs[0]) for runs in collect(study, options).values())
    assert beside.run.snapshots == {} and "atoms" in inside.run.snapshots
    assert beside.atoms.shape[0] == inside.atoms.shape[0] == 6 and beside.optimal.shape == beside.steps.shape
    assert np.isnan(beside.w2_left) and beside.w2_text == "" and inside.w2_left > 0
