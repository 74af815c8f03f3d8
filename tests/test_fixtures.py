"""Runs saved by earlier versions load and go on."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tremble

SAVED = sorted(path.parent for path in (Path(__file__).parent / "fixtures").glob("format-*/*/config.json"))


@pytest.mark.parametrize("saved", SAVED, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_a_saved_run_loads_and_continues(saved, tmp_path):
    expected = json.loads((saved / "predicted.json").read_text())
    agent = tremble.load(saved)
    np.testing.assert_allclose(agent.distribution(np.array(expected["obs"])).atoms, expected["atoms"], rtol=1e-5)
    shutil.copytree(saved, tmp_path / "run")
    steps = []
    run = tremble.resume(tmp_path / "run", on_progress=lambda step, row: steps.append(step))
    assert min(steps) > 150 and run.rows[-1]["step"] == 200


def test_there_are_saved_runs():
    assert len(SAVED) >= 2
