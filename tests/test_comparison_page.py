"""The page from nothing to a comparison, word for word: its file is saved, its commands are run in order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "comparison.md").read_text()


@pytest.mark.slow
def test_the_page_is_true(tmp_path):
    (source,) = re.findall(r"```python\n(# my_envs\.py\n.*?)```", PAGE, re.S)
    (tmp_path / "my_envs.py").write_text(source)
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    assert len(commands) == 5 and all(command.startswith("tremble ") for command in commands)
    said = []
    for command in commands:
        words = [sys.executable, "-m", "tremble.cli.main", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env={**os.environ})
        assert done.returncode == 0, command + done.stderr + done.stdout
        said.append(done.stdout)
    assert "0 already done, 6 to train" in said[0] and "6 already done, 4 to train" in said[1]
    header, *rows = said[2].strip().splitlines()
    assert header == "agent,runs,score" and [row.split(",")[:2] for row in rows] == [["pqr", "5"], ["qrdqn", "5"]]
    assert all(0.0 <= float(row.split(",")[2]) <= 2.4 for row in rows)
    for page in ("runs/roads/report.html", "published/report.html", "published/report.md"):
        text = (tmp_path / page).read_text()
        assert "PQR" in text and "QR-DQN" in text and "my_envs:Roads" in text
    assert not list((tmp_path / "runs").rglob("checkpoints/step-*")), "gc removed them"
