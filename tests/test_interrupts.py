"""Ctrl-C at moments when Python cannot run a handler: acknowledged at once, and a second one does no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tremble.training.interrupt import deferred_signals

SMALL = ["--set", "n_quantiles=4", "--set", "widths=8", "--set", "batch_size=4", "--set", "start_steps=20"]
BUSY = '''
import hashlib, os, pathlib
import gymnasium

HERE = pathlib.Path(__file__).parent


class Busy(gymnasium.Wrapper):
    """CartPole; where there is a file `hang`, step 60 computes in C for that many seconds, deaf to signals."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 60 and (HERE / "hang").exists():
            (HERE / "reached").touch()
            for _ in range(int((HERE / "hang").read_text())):
                hashlib.pbkdf2_hmac("sha256", b"", b"", 10**6)
        return self.env.step(action)
'''


def start(where: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tremble_main", *arguments]
    return subprocess.Popen(command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def train(where: Path, out: str) -> subprocess.Popen[str]:
    (where / "own.py").write_text(textwrap.dedent(BUSY))
    often = ["--evaluate-every", "0", "--out", out]
    return start(where, "train", "pqr", "--env", "own:Busy", "--steps", "150", *often, *SMALL)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 240
    while not path.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert path.exists(), process.communicate()


def files(run: Path) -> dict[str, bytes]:
    names = ("weights.safetensors", "metrics.jsonl", "episodes.jsonl", "config.json")
    return {name: (run / name).read_bytes() for name in names}


@pytest.mark.slow
def test_ctrl_c_during_a_long_step_is_acknowledged_and_keeps_the_run(tmp_path):
    (tmp_path / "hang").write_text("8")
    process = train(tmp_path, "ours")
    wait_for(tmp_path / "reached", process)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    said = ""
    while "the run ends after the step" not in said:
        line = process.stdout.readline()
        assert line, "the command ended without a word"
        said += line
    assert process.poll() is None, "it was said before the step ended"
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130 and "interrupted" in out and "Traceback" not in err + out, err
    assert list((tmp_path / "ours/checkpoints").glob("step-0000000060*")), "the step under way was finished and saved"
    (tmp_path / "hang").unlink()
    assert train(tmp_path, "ours").wait() == train(tmp_path, "whole").wait() == 0
    assert files(tmp_path / "ours") == files(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_deaf_step_at_once_and_does_no_harm(tmp_path, number):
    (tmp_path / "hang").write_text("100000")
    process = train(tmp_path, "ours")
    wait_for(tmp_path / "reached", process)
    process.send_signal(number)
    time.sleep(0.5)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and "ended at once" in out and "Traceback" not in err + out, err
    (tmp_path / "hang").unlink()
    assert train(tmp_path, "ours").wait() == train(tmp_path, "whole").wait() == 0
    assert files(tmp_path / "ours") == files(tmp_path / "whole")


def test_ctrl_c_during_an_import_ends_quietly(tmp_path):
    (tmp_path / "tyro.py").write_text("import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(600)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tremble_main", "list"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "importing", process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == -signal.SIGINT


def test_plain_progress_without_a_terminal(tmp_path):
    process = start(tmp_path, "train", "pqr", "--env", "nchain", "--steps", "1500", "--out", "run", *SMALL)
    out, err = process.communicate(timeout=240)
    lines = [line for line in out.splitlines() if line.startswith("step ")]
    assert process.returncode == 0 and lines[-1].startswith("step 1,500 of 1,500 (100%)"), out + err
    assert "nan" not in out and "loss" in lines[0], "the first numbers are numbers"


@pytest.mark.slow
def test_ctrl_c_in_the_terminal_reaches_environments_in_processes_and_does_no_harm(tmp_path):
    """A terminal signals the whole process group."""
    (tmp_path / "own.py").write_text(textwrap.dedent(BUSY))
    command = [sys.executable, "-m", "tremble_main", "train", "pqr", "--env", "own:Busy", "--steps", "100000"]
    command += ["--n-envs", "2", "--parallel", "--evaluate-every", "0", "--record-every", "50", "--out", "run", *SMALL]
    process = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "run" / "metrics.jsonl", process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130 and "Traceback" not in out + err, out + err
    assert list((tmp_path / "run/checkpoints").glob("step-*")), "saved, although no checkpoint was due"


def test_signals_that_a_program_ignores_stay_ignored():
    said = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_signals(said.append) as asked:
            os.kill(os.getpid(), signal.SIGINT)
            assert asked() is None and signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
    assert not said


def test_a_signal_at_the_very_end_is_not_lost():
    with pytest.raises(KeyboardInterrupt), deferred_signals(lambda text: None):
        os.kill(os.getpid(), signal.SIGINT)
