"""A run that is lengthened is the run of that length; a callback adds numbers to rows and ends runs."""

from __future__ import annotations

import json
import os
import signal

import gymnasium
import numpy as np
import pytest

import tremble
from tremble.records import CheckpointError
from tremble.settings import SettingsError
from tremble.training.episode_rows import EpisodeRows

SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
HOW = {"record_every": 50, "chunk": 25, "checkpoint_every": 40}
CASES = {
    "xla": ("pqr", "nchain", SMALL),
    "gymnasium": (
        "qrdqn",
        "CartPole-v1",
        SMALL | {"n_step": 3, "prioritised": True, "n_envs": 2, "evaluate_every": 60, "evaluate_episodes": 2},
    ),
    "more than divides": ("pqr", "CartPole-v1", SMALL | {"n_envs": 4}),
    "small memory": ("pqr", "CartPole-v1", SMALL | {"memory_size": 90}),
}
OLD, NEW = 130, 300
"""Neither records nor evaluations are due at the old end but for its being the end."""


def train(case, **more):
    agent, env, options = CASES[case]
    return tremble.train(agent, env, **(HOW | options | more))


def rows(directory, log, without=None):
    path = directory / f"{log}.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in found if row["step"] != without]


def equal_but_for_the_old_end(ours, whole, old=OLD):
    assert (ours / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()
    assert (ours / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    for log in ("metrics", "evaluations"):
        assert rows(ours, log, without=old) == rows(whole, log), log


@pytest.mark.parametrize("case", CASES)
def test_a_lengthened_run_is_a_run_of_that_length(case, tmp_path):
    train(case, steps=NEW, out=tmp_path / "whole")
    short = train(case, steps=OLD, out=tmp_path / "ours")
    assert len(short.rows) == 3 and short.rows[-1]["step"] >= OLD, "the end has a row of its own"
    run = tremble.resume(tmp_path / "ours", steps=NEW, chunk=25, checkpoint_every=40)
    assert run.spec.steps == NEW
    equal_but_for_the_old_end(tmp_path / "ours", tmp_path / "whole", short.rows[-1]["step"])


def test_a_lengthened_run_that_is_interrupted_keeps_its_new_length(tmp_path):
    def interrupt(step, row):
        if step >= 200:
            raise KeyboardInterrupt

    train("xla", steps=NEW, out=tmp_path / "whole")
    train("xla", steps=OLD, out=tmp_path / "ours")
    with pytest.raises(KeyboardInterrupt):
        tremble.resume(tmp_path / "ours", steps=NEW, chunk=25, checkpoint_every=40, on_progress=interrupt)
    tremble.resume(tmp_path / "ours", chunk=25, checkpoint_every=40)
    equal_but_for_the_old_end(tmp_path / "ours", tmp_path / "whole")
    with pytest.raises(SettingsError, match=r"is a run of 300 steps: it can be lengthened, not cut to 200"):
        tremble.resume(tmp_path / "ours", steps=200)
    with pytest.raises(CheckpointError, match=r"To lengthen it: tremble resume .*ours --steps 400"):
        train("xla", steps=400, out=tmp_path / "ours")
    with pytest.raises(CheckpointError, match=r"seed is 0 there and 1 here\. Choose another directory"):
        train("xla", steps=NEW, seed=1, out=tmp_path / "ours")


def test_logs_of_a_run_are_tables_also_where_they_are_empty():
    run = train("gymnasium", steps=120)
    assert run.evaluations["mean"].tolist() == [row["mean"] for row in run.evaluation_rows]
    assert run.episodes["return"].tolist() == [row["return"] for row in run.episode_rows]
    assert run.evaluations.step.tolist() == [60, 120] and run.episodes.step.dtype == int
    bare = train("xla", steps=60, env_options={"time_limit": 1000})
    assert list(bare.evaluations.columns)[:2] == ["step", "mean"] and bare.evaluations.empty
    assert list(bare.episodes.columns) == ["step", "return", "length"]


def test_no_number_of_the_first_row_is_missing_and_the_learning_rate_is_one_of_them():
    falling = {"decay_updates": 200, "learning_rate": 0.01}
    run = train("gymnasium", steps=120, start_steps=60, **falling)
    numbers = run.metrics.drop(columns=["not_finite"], errors="ignore")
    assert numbers.notna().all(axis=None), numbers.iloc[0]
    expected = [0.01 * (1 - updates / 200) for updates in run.metrics.updates]
    np.testing.assert_allclose(run.metrics.learning_rate, expected, rtol=1e-5)
    assert run.metrics.learning_rate[0] == pytest.approx(0.01), "before learning starts"


def until(step, seen):
    def callback(progress):
        seen.append((progress.kind, progress.step, len(progress.metrics), len(progress.evaluations)))
        assert np.isfinite(progress.agent().distribution([0.0, 0.0, 0.0, 0.0]).mean()).all()
        if progress.step >= step and progress.kind == "evaluation":
            progress.stop("enough")
        return {"twice": 2 * progress.step, "one": np.float32(1)}

    return callback


def test_a_callback_adds_metrics_and_stops_the_run(tmp_path):
    seen = []
    run = train("gymnasium", steps=NEW, out=tmp_path, callback=until(120, seen))
    assert [kind for kind, *_ in seen] == ["metrics", "evaluation", "metrics", "evaluation"]
    assert [step for _, step, *_ in seen] == [50, 60, 100, 120]
    assert run.metrics.twice.tolist() == [100, 200] and run.evaluations.twice.tolist() == [120, 240]
    assert run.stopped.step == 120 and run.stopped.reason == "enough"
    again = train("gymnasium", steps=NEW, out=tmp_path, callback=until(120, seen))
    assert again.stopped == run.stopped and len(seen) == 4, "the same call returns the run as it was stopped"
    assert json.loads((tmp_path / "config.json").read_text())["stopped"] == {"step": 120, "reason": "enough"}
    with pytest.warns(UserWarning, match="was trained with the callback"):
        whole = tremble.resume(tmp_path, steps=NEW, chunk=25, checkpoint_every=40)
    assert whole.stopped is None and whole.metrics.step.tolist()[-1] == NEW
    assert "stopped" not in json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize(
    "added, said",
    [
        ({"loss": 1.0}, "which the row has already"),
        ({"mine": "high"}, "metrics are numbers"),
        ({"mine": [1]}, "numbers"),
    ],
)
def test_what_a_callback_returns_is_checked(added, said):
    with pytest.raises(SettingsError, match=said):
        train("xla", steps=60, callback=lambda progress: added)


class Striking(gymnasium.Wrapper):
    """CartPole that sends Ctrl-C to this process in one of its evaluations."""

    armed = False
    made = 0

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        Striking.made += 1
        self.evaluates = Striking.made > 2  # two are for training

    def step(self, action):
        if Striking.armed and self.evaluates:
            Striking.armed = False
            os.kill(os.getpid(), signal.SIGINT)
        return self.env.step(action)


def test_an_evaluation_that_is_interrupted_is_made_on_resume(tmp_path):
    def run(directory, armed):
        Striking.armed, Striking.made = armed, 0
        agent, _, options = CASES["gymnasium"]
        return tremble.train(agent, Striking, steps=150, out=tmp_path / directory, **(HOW | options))

    whole = run("whole", armed=False)
    with pytest.raises(KeyboardInterrupt):
        run("ours", armed=True)
    files = sorted((tmp_path / "ours/checkpoints").glob("step-*"))
    assert files[-1].name == "step-0000000060.safetensors" and not rows(tmp_path / "ours", "evaluations")
    continued = run("ours", armed=False)
    assert continued.evaluation_rows == whole.evaluation_rows and len(whole.evaluation_rows) == 3
    for name in ("weights.safetensors", "best.safetensors", "metrics.jsonl", "evaluations.jsonl", "episodes.jsonl"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_episodes_in_memory_are_the_rows_of_the_file():
    rows = [{"step": 3, "return": 1.5, "length": 3}, {"step": 9, "return": None, "length": 6}]
    assert list(EpisodeRows(rows)) == rows and EpisodeRows(rows)[-1:] == rows[1:] and len(EpisodeRows()) == 0
