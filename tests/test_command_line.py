"""The command as a user meets it: in a process of its own."""

import os
import signal
import subprocess
import sys
import time

import pytest

SMALL = ["--set", "n_quantiles=16", "--set", "widths=16,16", "--set", "batch_size=16", "--set", "start_steps=100"]


def tremble(*arguments, cwd, **options):
    command = [sys.executable, "-m", "tremble.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **options)


def test_help_teaches(tmp_path):
    text = tremble("--help", cwd=tmp_path).stdout
    assert all(word in text for word in ("train", "study", "demo", "list"))
    assert "--budget-minutes" in tremble("study", "--help", cwd=tmp_path).stdout


def test_list(tmp_path):
    text = tremble("list", cwd=tmp_path).stdout
    assert all(word in text for word in ("pqr", "p_dltv", "nchain-readings", "nchain"))
    assert "criterion.delta_0" in tremble("list", "--settings", "pqr", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["train", "pqrr"], "did you mean 'pqr'"),
        (["train", "pqr", "--set", "detla_0=3"], "did you mean 'delta_0'"),
        (["train", "pqr", "--env", "nchian"], "did you mean 'nchain'"),
        (["study", "nchain-count"], "did you mean 'nchain-counts'"),
        (["study", "nchain-counts", "--report-only"], "no finished runs"),
    ],
)
def test_mistakes_are_one_clear_message(tmp_path, arguments, message):
    result = tremble(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in " ".join(result.stderr.split()) and "Traceback" not in result.stderr


def test_train_writes_a_run(tmp_path):
    result = tremble("train", "pqr", "--steps", "600", "--out", "mine", *SMALL, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    names = {p.name for p in (tmp_path / "mine").iterdir()}
    assert names == {"config.json", "metrics.jsonl", "weights.safetensors", "state.safetensors"}
    assert "optimal actions" in result.stdout


def test_ctrl_c_keeps_the_run_and_says_so(tmp_path):
    arguments = ["train", "pqr", "--steps", "2000000", "--out", "long", *SMALL]
    process = subprocess.Popen(
        [sys.executable, "-m", "tremble.cli", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TREMBLE_SAVE_SECONDS": "0.5"},
    )
    state = tmp_path / "long" / "state.safetensors"
    deadline = time.monotonic() + 240
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert state.exists(), "saved while running"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in out and "Traceback" not in err
    assert state.exists()


@pytest.mark.slow
def test_a_study_from_end_to_end_and_again(tmp_path):
    arguments = ("study", "nchain-counts", "--quick", "--steps", "1000", "--seeds", "2")
    first = tremble(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr + first.stdout
    out = tmp_path / "runs" / "nchain-counts"
    names = {p.name for p in out.iterdir()}
    assert names == {"report.md", "counts.png", "counts.svg", "counts.csv", "curves.csv"}
    report = (out / "report.md").read_text()
    assert "verdict" in report and "15,142" in report
    rows = (out / "counts.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * 2
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs" / "store").rglob("*.safetensors")}
    assert len(stamps) == 8
    second = tremble(*arguments, "--report-only", cwd=tmp_path)
    assert second.returncode == 0 and (out / "report.md").read_text() == report
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps, "nothing was trained again"
