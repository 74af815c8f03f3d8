"""The wheel builds, is typed, and carries the command; its extras are known."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tremble.extras import EXTRAS

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_wheel_is_complete_and_typed(tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(n for n in names if n.endswith("entry_points.txt"))
        assert "tremble = tremble_main:main" in archive.read(entry_points).decode()
    package = ROOT / "src" / "tremble"
    shipped = (p for kind in ("*.py", "data/*.csv", "data/*.json", "data/*.toml") for p in package.rglob(kind))
    sources = {f"tremble/{p.relative_to(package)}" for p in shipped}
    data = (
        "report/data/atari57_human_random.csv",
        "studies/atari/data/claims.toml",
        "studies/control/data/candidates.toml",
    )
    assert {f"tremble/{name}" for name in data} <= sources
    assert {"tremble/py.typed", "tremble_main.py"} <= names and sources <= names
    assert not any(n.startswith(("tests/", "benchmarks/")) for n in names)


def test_the_doctor_knows_every_extra():
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev"}
    for name, extra in EXTRAS.items():
        assert len(extra.modules) == len(extras[name]), "a module for each package"
        assert extra.missing() == [], "all of them are installed for tests"
