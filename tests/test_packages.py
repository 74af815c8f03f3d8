"""Environments of packages that nobody here wrote: `make test-packages`, in an environment of its own.

Each is trained by the command line, terminated on the way, resumed, evaluated, recorded as a video and loaded.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import tremble

pytestmark = pytest.mark.packages

OWN = '''
import gymnasium
import highway_env  # registers its environments
import minigrid
from gymnasium.wrappers import FilterObservation
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper


def picture(**options):
    """MiniGrid's whole grid as a picture: the wrappers its documentation recommends for learning."""
    return ImgObsWrapper(FullyObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0", **options)))


def without_mission(**options):
    """What the agent of MiniGrid sees, without the text of its mission, as the message about it says."""
    return FilterObservation(gymnasium.make("MiniGrid-Empty-5x5-v0", **options), ["image", "direction"])
'''
CASES = {
    "minigrid": "own:without_mission",
    "minigrid through wrappers": "own:picture",
    "highway-env": "highway_env:highway-fast-v0",
    "flappy-bird": "flappy_bird_gymnasium:FlappyBird-v0",
}
SMALL = ["--set", "n_quantiles=8", "--set", "batch_size=16", "--set", "start_steps=40"]
STEPS, TRUST = 240, "--trust-code"


def run(where: Path, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """A command; with ``seconds`` it is terminated after the first row it logs."""
    command = [sys.executable, "-m", "tremble.cli.main", *arguments]
    process = subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if seconds is not None:
        rows, until = where / "run" / "metrics.jsonl", time.monotonic() + seconds
        while process.poll() is None and not (rows.exists() and rows.stat().st_size) and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=600)[0]
    return subprocess.CompletedProcess(command, process.returncode, said)


def test_the_packages_are_there():
    """This test is run where they are; a missing one is a failure, not a skip."""
    assert all(importlib.util.find_spec(name) for name in ("minigrid", "highway_env", "flappy_bird_gymnasium"))


def test_a_text_among_the_observations_is_refused_with_the_way_out(tmp_path):
    refused = run(tmp_path, "train", "pqr", "--env", "minigrid:MiniGrid-Empty-5x5-v0")
    assert refused.returncode == 1 and "the part 'mission' (MissionSpace)" in refused.stdout
    assert "FilterObservation(env, ['direction', 'image'])" in refused.stdout


@pytest.mark.parametrize("name", CASES)
def test_train_resume_evaluate_record_load(name, tmp_path):
    (tmp_path / "own.py").write_text(textwrap.dedent(OWN))
    train = ["train", "pqr", "--env", CASES[name], "--steps", str(STEPS), *SMALL, "--record-every", "40"]
    train += ["--evaluate-every", "120", "--evaluate-episodes", "2"]
    stopped = run(tmp_path, *train, "--out", "run", seconds=300)
    assert stopped.returncode == 143, stopped.stdout
    resumed = run(tmp_path, "resume", "run", TRUST)
    assert resumed.returncode == 0, resumed.stdout
    whole = run(tmp_path, *train, "--out", "whole")
    assert whole.returncode == 0, whole.stdout
    for log in ("metrics", "episodes", "evaluations"):
        there, undisturbed = ((tmp_path / d / f"{log}.jsonl").read_text() for d in ("run", "whole"))
        assert there == undisturbed, f"{log} of the resumed run differ from an undisturbed one's"
    assert (tmp_path / "run/weights.safetensors").read_bytes() == (tmp_path / "whole/weights.safetensors").read_bytes()

    evaluated = run(tmp_path, "evaluate", "run", "--episodes", "3", TRUST)
    assert evaluated.returncode == 0 and "over 3 episodes" in evaluated.stdout, evaluated.stdout
    recorded = run(tmp_path, "video", "run", "--max-steps", "20", "--out", "episode.mp4", TRUST)
    assert recorded.returncode == 0 and (tmp_path / "episode.mp4").stat().st_size > 5_000, recorded.stdout

    sys.path.insert(0, str(tmp_path))
    try:
        agent = tremble.load(tmp_path / "run", trust_code=True)
        result = tremble.evaluate(agent, CASES[name], episodes=2)
    finally:
        sys.path.remove(str(tmp_path))
    assert np.isfinite(result.returns).all() and len(result.returns) == 2
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["spec"]["env"] == CASES[name]
    shutil.rmtree(tmp_path / "run")
