"""A run that is killed at any moment, also while it writes a checkpoint, ends like one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tremble.training import checkpoint
from tremble.training.run_directory import RunFiles

SCRIPT = """
import sys
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
import tremble
print("ready", flush=True)
tremble.train(
    "pqr", "CartPole-v1", steps=3000, out=sys.argv[1], chunk=10, record_every=100, checkpoint_every=20,
    evaluate_every=1000, evaluate_episodes=2, n_quantiles=8, widths=[16], batch_size=16, start_steps=60,
    n_step=3, prioritised=True, resample_noise_every="episode", n_envs=2,
)
print("finished", flush=True)
"""


def start(directory: Path, cache: Path) -> subprocess.Popen:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "1"}
    command = [sys.executable, "-c", SCRIPT, str(directory), str(cache)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)


def results(directory: Path) -> dict[str, bytes]:
    """Everything two equal runs have in common."""
    files = [p for p in sorted(directory.rglob("*")) if p.is_file() and not p.name.startswith(("timing", "lock"))]
    return {str(p.relative_to(directory)): p.read_bytes() for p in files}


def kill_many_times(tmp_path: Path, kills: int, seed: int) -> None:
    cache = tmp_path / "cache"
    assert start(tmp_path / "whole", cache).wait(timeout=300) == 0
    rng = random.Random(seed)
    killed, writing, directory, number = 0, 0, tmp_path / "run-0", 0
    while True:
        process = start(directory, cache)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        newest = RunFiles(directory).checkpoints()
        begin = time.monotonic()
        # Half of the kills wait for the first new checkpoint and then strike within a few steps' time; as one in ten
        # steps writes a file, some fall into a write. The others strike at any time, also before anything is saved.
        if rng.random() < 0.5:
            while (
                process.poll() is None and RunFiles(directory).checkpoints() == newest and time.monotonic() < begin + 60
            ):
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.05))
        else:
            time.sleep(rng.uniform(0, 3))
        if killed < kills and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            writing += bool(list((directory / "checkpoints").glob(".*"))) if directory.exists() else 0
            continue
        assert process.wait(timeout=300) == 0
        whole, ended = results(tmp_path / "whole"), results(directory)
        assert whole.keys() == ended.keys()
        for name in whole:
            assert whole[name] == ended[name], name
        if killed >= kills:
            break
        number += 1
        directory = tmp_path / f"run-{number}"
    steps = [json.loads(line)["step"] for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)), "no row twice, none lost"
    print(f"{killed} kills over {number + 1} runs, {writing} of them left an unfinished file")


@pytest.mark.long
def test_a_few_kills(tmp_path):
    kill_many_times(tmp_path, 3, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("half", [0, 1])
def test_fifty_kills(tmp_path, half):
    kill_many_times(tmp_path, 25, seed=1 + half)


def test_unfinished_files_are_not_taken_for_checkpoints(tmp_path):
    files = RunFiles(tmp_path)
    meta = {"logs": {"metrics": 0, "episodes": 0, "evaluations": 0, "final": 0}, "settings": {}}
    checkpoint.save(tmp_path / "checkpoints" / "step-0000000020.safetensors", {}, meta)
    (tmp_path / "checkpoints" / ".step-0000000040.safetensors.x7").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".tmpklZSin").write_bytes(b"half")
    (tmp_path / ".tmpAb12Cd").write_bytes(b"half")
    (tmp_path / ".mine").write_text("not ours to clear away")
    assert [p.name for p in files.checkpoints()] == ["step-0000000020.safetensors"]
    assert files.restore_point({"settings": {}}) is not None
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1, "and they are cleared away"
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoints", ".mine"}
