"""Studies are settings as data: every cell of every study is a run that could start."""

import dataclasses

import pytest
from rich.console import Console

from tremble.settings import SettingsError
from tremble.studies import about_studies, find_study
from tremble.studies.kit import Options, collect, stored
from tremble.studies.nchain.readings import STUDY as READINGS
from tremble.studies.nchain.readings import ReadingResult


@pytest.mark.parametrize("quick", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n == "nchain-family" else n for n in about_studies()]
)
def test_every_cell_is_a_valid_run(name, quick, tmp_path):
    study = find_study(name)
    options = Options(tmp_path, tmp_path, study.seeds, study.quick_steps if quick else study.steps, quick)
    cells = study.cells(options)
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == len(labels)
    places = {stored(tmp_path, cell.spec(0, options.steps)) for cell in cells}
    without_runs = ("theory", "risk", "atari-audit")
    assert len(places) <= len(cells) and bool(cells) == (name not in without_runs)
    assert all(path.name == "seed-0000.safetensors" for path in places)
    specs = [cell.spec(0, options.steps) for cell in cells]
    # One of several environments with equal settings is enough: games under one protocol have the same agent.
    different = {(s.agent, str(s.agent_options), s.hyperparameters, s.protocol or s.env): s for s in specs}
    for spec in different.values():
        assert spec.build_agent().learning.start_steps < options.steps


def readings(directory, seeds, **changes):
    """Readings of the paper with made-up counts, as a report in a directory leaves them."""
    directory.mkdir(exist_ok=True)
    options = Options(directory, directory / "store", seeds, 20_000, report_only=True, **changes)
    cells = {c.label: stored(options.store, c.spec(0, options.steps)).parent.name for c in READINGS.cells(options)}
    results = {
        label: [ReadingResult(seed, run, 100 * seed + len(label), 7, 0.25) for seed in range(seeds)]
        for label, run in cells.items()
    }
    return options, results


@pytest.mark.slow
def test_a_study_goes_on_from_the_raw_data_of_a_report(tmp_path):
    """On another machine, where there is no store: what a report holds need not be made again."""
    options, results = readings(tmp_path / "there", 3)
    READINGS.analyse(results, options)
    here = Options(tmp_path / "here", tmp_path / "none", 2, 20_000, report_only=True, reuse_results=options.out)
    again = collect(READINGS, here, Console(quiet=True))
    assert again == {label: tallies[:2] for label, tallies in results.items()}
    # The same words about other runs are not taken for them.
    with pytest.raises(SettingsError, match=r"none of the 114 runs in .* has the settings of a run wanted here"):
        collect(READINGS, dataclasses.replace(here, steps=1000), Console(quiet=True))
    with pytest.raises(SettingsError, match="has no raw data of nchain-readings that can be read"):
        collect(READINGS, dataclasses.replace(here, reuse_results=tmp_path), Console(quiet=True))
    with pytest.raises(SettingsError, match="nchain-counts cannot go on from a report"):
        collect(find_study("nchain-counts"), here, Console(quiet=True))


def test_runs_in_the_store_come_before_recalled_ones(tmp_path):
    options, results = readings(tmp_path / "there", 1)
    READINGS.analyse(results, options)
    label = next(iter(results))
    cell = READINGS.cells(options)[0]
    path = stored(tmp_path / "store", cell.spec(0, 20_000))
    path.parent.mkdir(parents=True)
    path.touch()
    here = Options(tmp_path / "here", tmp_path / "store", 1, 20_000, report_only=True, reuse_results=options.out)
    study = dataclasses.replace(READINGS, load=lambda path, seed, spec: "from the store")
    assert collect(study, here, Console(quiet=True))[label] == ["from the store"]
