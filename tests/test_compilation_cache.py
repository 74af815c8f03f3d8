"""Compiled programs on disk: found again, private, bounded, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from tremble.training import compilation_cache
from tremble.training.compilation_cache import Programs, Unusable, folder

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
import tremble
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
said = tremble.enable_compilation_cache()
x = jax.jit(lambda x: (jnp.sin(x) @ jnp.cos(x).T).sum(0))(jnp.asarray(np.random.default_rng(0).normal(size=(50, 70))))
print(said)
print(hits.count("/jax/compilation_cache/cache_hits"), hits.count("/jax/compilation_cache/cache_misses"))
print(np.asarray(x).tobytes().hex()[:200])
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TREMBLE_COMPILATION_CACHE", raising=False)
    return tmp_path / "cache" / "tremble" / "programs"


def start(**env: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment = kept | {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "error"} | env
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, int, int, str]:
    """Where programs are kept, how many were found and stored, and the numbers."""
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert not errors, "silent"
    said, counts, numbers = out.splitlines()
    found, stored = map(int, counts.split())
    return said, found, stored, numbers


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_has_the_same_numbers(home):
    where, found, stored, numbers = finish(start())
    assert Path(where).parent == home and found == 0 and stored > 0
    assert len(list(Path(where).iterdir())) == stored
    assert finish(start()) == (where, stored, 0, numbers)
    _, found, stored_then, _ = finish(start(NPROC="1"))
    assert found == 0 and stored_then > 0, "programs for one thread are others"
    for path in Path(where).iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    assert finish(start()) == (where, 0, stored, numbers), "what is damaged is compiled and stored again"
    assert finish(start()) == (where, stored, 0, numbers)


@pytest.mark.slow
def test_many_processes_at_once():
    answers = {finish(process)[3] for process in [start() for _ in range(4)]}
    assert len(answers) == 1
    _, found, stored, numbers = finish(start())
    assert found > 0 and stored == 0 and {numbers} == answers


@pytest.mark.slow
def test_turned_off_or_left_to_jax(home, tmp_path):
    said, found, stored, _ = finish(start(TREMBLE_COMPILATION_CACHE="off"))
    assert said == "off: TREMBLE_COMPILATION_CACHE=off" and (found, stored) == (0, 0) and not home.exists()
    said, *_ = finish(start(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")))
    assert said == f"JAX's own, in {tmp_path / 'own'}" and not home.exists()
    said, _, stored, _ = finish(start(TREMBLE_COMPILATION_CACHE=str(tmp_path / "another")))
    assert Path(said).parent == tmp_path / "another" and stored > 0 and not home.exists()


def test_the_folder_is_private(home, monkeypatch):
    made = folder()
    assert made.parent == home
    assert [path.stat().st_mode & 0o777 for path in (home, made)] == [0o700, 0o700]
    home.chmod(0o755)
    with pytest.raises(Unusable, match=f"is not for this user alone: chmod 700 {home}"):
        folder()
    home.chmod(0o700)
    made.rmdir()
    made.symlink_to(home.parent)
    with pytest.raises(Unusable, match="is a link or a file"):
        folder()
    monkeypatch.setenv("TREMBLE_COMPILATION_CACHE", "somewhere")
    with pytest.raises(Unusable, match="no absolute path"):
        folder()


def test_another_jaxlib_or_processor_has_a_folder_of_its_own(monkeypatch):
    here = folder()
    monkeypatch.setattr(compilation_cache, "processor", lambda: "another one")
    there = folder()
    monkeypatch.setattr(compilation_cache, "versions", lambda: {"jaxlib": "99.0"})
    assert len({here, there, folder()}) == 3


def test_a_program_is_found_only_whole():
    programs = Programs(folder())
    assert programs.get("key") is None
    programs.put("key", b"program")
    assert programs.get("key") == Programs(folder()).get("key") == b"program"
    (path,) = folder().iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert programs.get("key") is None and not path.exists()


def test_the_least_recently_used_make_room(home):
    programs = Programs(folder(), limit=10_000)
    for k in range(4):
        programs.put(f"key{k}", bytes(2_000))
        os.utime(programs._file(f"key{k}"), (k, k))
    assert programs.get("key0") is not None, "used now"
    beside = home / "jaxlib-old"
    beside.mkdir()
    (beside / "old").write_bytes(bytes(1_000))
    os.utime(beside / "old", (0, 0))
    theirs = home / "thesis" / "draft.txt"
    theirs.parent.mkdir()
    theirs.write_bytes(bytes(20_000))
    os.utime(theirs, (0, 0))
    programs.put("key4", bytes(3_000))
    assert theirs.exists(), "what is no program is nobody's to remove"
    assert [programs.get(f"key{k}") is not None for k in range(5)] == [True, False, False, True, True], "to 80 %"
    assert not (beside / "old").exists(), "of other versions too"


def test_what_a_killed_process_left_is_removed():
    programs = Programs(folder())
    left, new = folder() / ".half", folder() / ".being-written"
    left.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(left, (time.time() - 7200,) * 2)
    programs._make_room()
    assert not left.exists() and new.exists()


def test_no_home_directory_is_no_error(monkeypatch):
    def unknown(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", unknown)
    of_tests = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert compilation_cache.enable_compilation_cache() == "off: Could not determine home directory."
    finally:
        jax.config.update("jax_compilation_cache_dir", of_tests)


def test_a_full_disk_is_no_error(monkeypatch):
    programs = Programs(folder())

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    programs.put("key", b"program")
    assert programs.get("key") is None and not list(folder().iterdir())


@pytest.mark.slow
def test_runs_are_the_same_with_and_without_it(tmp_path):
    """The first run compiles and stores, the second one finds everything, the third has no cache."""

    def train(out: Path, *flags: str) -> dict[str, bytes]:
        command = ["train", "pqr", "--env", "nchain", "--steps", "120", "--record-every", "60", "--out", str(out)]
        small = ["start_steps=50", "n_quantiles=8", "widths=8", "batch_size=8"]
        settings = [word for setting in small for word in ("--set", setting)]
        kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        subprocess.run(
            [sys.executable, "-m", "tremble_main", *command, *settings, *flags],
            env=kept | {"JAX_PLATFORMS": "cpu"},
            check=True,
            stdout=subprocess.PIPE,
        )
        files = [path for path in out.rglob("*") if path.is_file()]
        same = [path for path in files if path.name != "timing.jsonl" and not path.name.startswith("lock")]
        return {str(path.relative_to(out)): path.read_bytes() for path in same}

    first, second = train(tmp_path / "a"), train(tmp_path / "b")
    assert first == second == train(tmp_path / "c", "--no-compilation-cache") and len(first) > 4
