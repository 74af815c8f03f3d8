"""Studies are settings as data: every cell of every study is a run that could start."""

import pytest

from tremble.studies import STUDIES
from tremble.studies.runner import Options, stored


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_is_a_valid_run(name, quick, tmp_path):
    study = STUDIES[name]
    options = Options(tmp_path, tmp_path, study.seeds, study.quick_steps if quick else study.steps, quick)
    cells = study.cells(options)
    labels = [cell.label for cell in cells]
    assert len(set(labels)) == len(labels)
    places = {stored(tmp_path, cell.spec(0, options.steps)) for cell in cells}
    without_runs = ("theory", "risk", "atari-audit")
    assert len(places) <= len(cells) and bool(cells) == (name not in without_runs)
    assert all(path.name == "seed-0000.safetensors" for path in places)
    for cell in cells:
        agent = cell.spec(0, options.steps).build_agent()
        assert agent.start_steps < options.steps
