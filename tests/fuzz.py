"""Hostile run directories: real ones, changed at random, then loaded, read, resumed and locked under audit hooks.

    python -m tests.fuzz                    2,000 changed files; a line per failure, exit code 1 if there is one
    python -m tests.fuzz --files 200 --seed 7

What must hold for every one of them: no import of what only the files name, no file outside the directory opened for
writing, removed or changed, no exception but the library's own, and no call that does not return.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from safetensors.numpy import load_file, save_file

import tremble
from tremble.envs.encoding import UnsupportedSpaceError
from tremble.envs.faults import EnvironmentFaultError
from tremble.records import CheckpointError
from tremble.replay import DivergedError
from tremble.report.run_reader import read_run
from tremble.report.run_score import METRICS, score
from tremble.settings import SettingsError
from tremble.sweep_records import Cell, Outcome, SweepData, SweepRun
from tremble.sweeps.results import LOGS, log_table, run_table
from tremble.training import checkpoint, lock
from tremble.training.run_directory import RunFiles

OWN_ERRORS = (CheckpointError, SettingsError, UnsupportedSpaceError, EnvironmentFaultError, DivergedError)
EVIL = "evil_module_that_runs"
"""On the import path; importing it is the failure."""
SECONDS = 60
"""No call on a small run takes as long."""
JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    0.5,
    -0.5,
    2**31,
    2**63,
    10**30,
    1e308,
    "",
    "x",
    "nan",
    "\x1b[31m",
    "../../outside",
    "/etc/passwd",
    f"{EVIL}:run",
    f"{EVIL}:Class",
    f"{EVIL}:Env-v0",
    "os:system",
    [],
    {},
    [1, 2],
    [[1], "a"],
    {"a": 1},
)
CHANGES = ("os.remove", "os.rmdir", "os.truncate", "os.mkdir", "os.chmod", "os.link", "os.symlink", "os.rename")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Pictures(gymnasium.Env[Any, Any]):
    """Stacked pictures, so that replay is saved in blocks."""

    metadata = {"render_modes": [], "stacked_pictures": True}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 2), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._stack, self._t = np.zeros((36, 36, 2), np.uint8), 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        return self._show(), float(action == 1), self._t >= 9, False, {}

    def _show(self) -> np.ndarray:
        picture = self.np_random.integers(0, 255, (36, 36), np.uint8)
        self._stack = np.stack([self._stack[..., 1], picture], -1)
        return self._stack.copy()


class Dials(gymnasium.Env[Any, Any]):
    """Two choices at a time, with masks."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._show()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self._t += 1
        obs, info = self._show()
        return obs, float(action.sum()), self._t >= 9, False, info

    def _show(self) -> Any:
        mask = np.ones(2, np.int8), np.array([1, self._t % 2, 1], np.int8)
        return self.np_random.normal(size=2).astype(np.float32), {"action_mask": mask}


gymnasium.register("tremble-tests/Pictures-v0", lambda: Pictures())
gymnasium.register("tremble-tests/Dials-v0", lambda: NormalizeReward(NormalizeObservation(Dials())))
SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "xla": ("pqr", "nchain", SMALL),
    "gymnasium": ("qrdqn", "CartPole-v1", SMALL | {"n_step": 3, "prioritised": True, "criterion": "cvar", "n_envs": 2}),
    "options": ("quota", "CartPole-v1", SMALL | {"memory_size": 50, "resample_noise_every": "episode"}),
    "choices": ("qrdqn", "tremble-tests/Dials-v0", SMALL),
    "finished": ("qrdqn", "CartPole-v1", SMALL | {"final_episodes": 2}),
    "pictures": ("c51", "tremble-tests/Pictures-v0", {"widths": [8], "batch_size": 4, "start_steps": 20}),
}
"""Runs that together write everything a run can write."""


def make_runs(root: Path) -> dict[str, Path]:
    """Train the small runs; all but one stop before their end."""
    for name, (agent, env, options) in RUNS.items():
        with contextlib.suppress(_Stop):
            tremble.train(
                agent,
                env,
                steps=200,
                out=root / name,
                checkpoint_every=40,
                record_every=25,
                evaluate_every=50,
                evaluate_episodes=2,
                chunk=20,
                on_progress=_stop_at(1000 if name == "finished" else 110),
                **options,
            )
    return {name: root / name for name in RUNS}


class _Stop(Exception):
    """Ends a run from its progress callback."""


class _Hang(BaseException):
    """A call took too long."""


def _stop_at(step: int) -> Callable[[int, Any], None]:
    def on_progress(t: int, row: Any) -> None:
        if t >= step:
            raise _Stop

    return on_progress


# --- changes ----------------------------------------------------------------------------------------------------------


def change(run: Path, rng: random.Random, outside: Path) -> str:
    """Change something in a run's directory; says what."""
    changes = (_flip, _cut, _meta, _meta, _meta, _meta, _arrays, _arrays, _log, _link, _special, _lock)
    return rng.choice(changes)(run, rng, outside)


def _pick(run: Path, rng: random.Random, pattern: str = "*") -> Path:
    return rng.choice(sorted(path for path in run.rglob(pattern) if path.is_file() and not path.is_symlink()))


def _flip(run: Path, rng: random.Random, outside: Path) -> str:
    path = _pick(run, rng)
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(rng.choice((1, 3, 50))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    return f"bytes of {path.name}"


def _cut(run: Path, rng: random.Random, outside: Path) -> str:
    path = _pick(run, rng)
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)] + bytes(rng.choices(range(256), k=rng.choice((0, 0, 9)))))
    return f"{path.name} cut"


def _meta(run: Path, rng: random.Random, outside: Path) -> str:
    """Other values in the metadata of a file, with the right checksum."""
    path = _pick(run, rng, "*.safetensors")
    meta, arrays = checkpoint.read_meta(path), load_file(path)
    said = []
    for _ in range(rng.choice((1, 1, 2))):
        said.append(_replace_somewhere(meta, rng))
    write_as_ours(path, meta, arrays)
    if rng.random() < 0.3 and (config := run / "config.json").exists():
        described = json.loads(config.read_text())
        said.append(_replace_somewhere(described, rng))
        config.write_text(json.dumps(described))
    return f"{path.name}: {'; '.join(said)}"


def _replace_somewhere(tree: Any, rng: random.Random) -> str:
    places = list(_places(tree))
    if not places:
        return "nothing"
    parent, key, name = rng.choice(places)
    how = rng.random()
    if how < 0.1:
        del parent[key]
        return f"{name} removed"
    if how < 0.15 and isinstance(parent, dict):
        parent[f"{key} too"] = parent[key]
        return f"{name} twice"
    if how < 0.2:
        nested: Any = []
        for _ in range(rng.choice((20, 900, 5000))):
            nested = [nested]
        parent[key] = nested
        return f"{name} nested"
    old = parent[key]
    junk = rng.choice(JUNK)
    if type(old) in (int, float) and rng.random() < 0.5:
        junk = rng.choice((-old, old + 1, old * 2, type(old)(old * 10**6), old / 3))
    parent[key] = junk
    return f"{name} = {junk!r}"


def _places(tree: Any, path: str = "") -> Iterator[tuple[Any, Any, str]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key, f"{path}.{key}"
        yield from _places(value, f"{path}.{key}")


def write_as_ours(path: Path, meta: Any, arrays: dict[str, np.ndarray]) -> None:
    """A file with the right checksum, whatever it holds."""
    sys.setrecursionlimit(20_000)
    try:
        digest = checkpoint._digest(meta, arrays)
        header = {"tremble": json.dumps({"format": checkpoint.FORMAT, "digest": digest, "meta": meta})}
    finally:
        sys.setrecursionlimit(1000)
    save_file(arrays, path, metadata=header)


def _arrays(run: Path, rng: random.Random, outside: Path) -> str:
    """Other arrays in a file, with the right checksum."""
    path = _pick(run, rng, "*.safetensors")
    meta, arrays = checkpoint.read_meta(path), load_file(path)
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy()
    how = rng.choice(("shape", "type", "value", "values", "gone", "empty", "more"))
    match how:
        case "shape":
            arrays[name] = array.reshape(-1)[None] if rng.random() < 0.5 else np.repeat(array[None], 2, 0)
        case "type":
            arrays[name] = array.astype(rng.choice((np.int64, np.float64, np.uint8, np.float16)))
        case "value" | "values":
            flat = array.reshape(-1)
            where = slice(None) if how == "values" else rng.randrange(max(flat.size, 1))
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                number = rng.choice((np.nan, np.inf, -1, 1e30, 12345, 0))
                if flat.size:
                    flat[where] = np.asarray(number).astype(array.dtype)
            arrays[name] = array
        case "gone":
            del arrays[name]
        case "empty":
            arrays[name] = np.zeros((0, *array.shape[1:]), array.dtype)
        case "more":
            arrays[f"{name}/{rng.choice(('x', '../x', 'count'))}"] = array
    write_as_ours(path, meta, arrays)
    return f"{path.name}: {name} {how}"


def _log(run: Path, rng: random.Random, outside: Path) -> str:
    path = _pick(run, rng, "*.json*")
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    garbage = rng.choice(
        (
            b"garbage\n",
            b"[]\n",
            b"null\n",
            b'{"step": NaN}\n',
            b"\xff\xfe\n",
            b"[" * 100_000 + b"\n",
            b'{"step": "a"}\n',
            b'{"step": 1' + b"0" * 5000 + b"}\n",
            json.dumps({"step": 1, "mean": "x", "returns": 3}).encode() + b"\n",
        )
    )
    lines[rng.randrange(len(lines))] = garbage
    path.write_bytes(b"".join(lines))
    return f"{path.name}: a line of garbage"


def _link(run: Path, rng: random.Random, outside: Path) -> str:
    """A link to something outside in place of a file or folder."""
    paths = sorted([*run.rglob("*"), *(run / name for name in ("best.safetensors", ".config.json.9", "x.jsonl"))])
    path = rng.choice(paths)
    target = outside / ("folder" if path.is_dir() else "file.safetensors")
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if rng.random() < 0.3 and not target.is_dir():
        os.link(target, path)
        return f"{path.name} is a hard link"
    path.symlink_to(target)
    return f"{path.name} is a link"


def _special(run: Path, rng: random.Random, outside: Path) -> str:
    """A pipe or a folder in place of a file."""
    path = _pick(run, rng)
    path.unlink()
    if rng.random() < 0.5:
        os.mkfifo(path)
        return f"{path.name} is a pipe"
    path.mkdir()
    return f"{path.name} is a folder"


def _lock(run: Path, rng: random.Random, outside: Path) -> str:
    path = run / f"lock-{rng.choice((1, 2, 9, 10**14))}.json"
    path.unlink(missing_ok=True)
    fields = {"pid": rng.choice(JUNK), "machine": rng.choice(JUNK), "released": rng.choice(JUNK), "step": "\x1b[2J"}
    path.write_text(rng.choice((json.dumps(fields), "", "[" * 50_000)))
    return f"{path.name} of nonsense"


# --- what is done with them, and what may not happen ------------------------------------------------------------------


class Watch:
    """Audit hooks: imports by name of the evil module, and changes outside the directory under test."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] = ()
        self.seen: list[str] = []
        self._on = False
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def within(self, *allowed: Path) -> Iterator[None]:
        """Record what happens outside these directories."""
        self.allowed, self.seen, self._on = tuple(f"{os.path.realpath(path)}/" for path in allowed), [], True
        try:
            yield
        finally:
            self._on = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event == "import" and EVIL in str(arguments[0]):
            self.seen.append(f"import of {arguments[0]}")
        elif event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            for path in arguments[: 2 if event == "os.rename" else 1]:
                self._path(event, path)
        elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect"):
            self.seen.append(f"{event}: {arguments[0]!r}")

    def _path(self, event: str, path: Any) -> None:
        if isinstance(path, int) or str(path).startswith("/dev/null"):
            return
        parent, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        if not f"{os.path.realpath(parent)}/{name}/".startswith(self.allowed):
            self.seen.append(f"{event}: {path}")


def actions(run: Path) -> dict[str, Callable[[], Any]]:
    """What people and commands do with a directory that they were given."""

    def resume() -> None:
        with contextlib.suppress(_Stop):
            tremble.resume(run, chunk=20, on_progress=_stop_at(0))

    def report() -> None:
        """As reports and tables of many runs read it."""
        outcome = Outcome("finished", "", 200, 1.0, 1.0, "host", "worker", {}, None, 1)
        found = SweepRun(Cell("cell", "qrdqn", "CartPole-v1"), 0, run, "test", outcome)
        for metric in (*METRICS, "auto"):
            score(run, metric)
        run_table([SweepData("sweep", run.parent, "auto", [found])])
        for log in LOGS:
            log_table([SweepData("sweep", run.parent, "auto", [found])], log)

    return {
        "report": report,
        "load": lambda: tremble.load(run),
        "load best": lambda: tremble.load(run, weights="best"),
        "read": lambda: read_run(run),
        "describe": lambda: RunFiles(run).described(),
        "resume": resume,
    }


def fuzz(n: int, seed: int, root: Path, on_case: Callable[[int], None] = lambda done: None) -> list[str]:
    """Change n files, one or more at a time, and try every action; returns what went wrong."""
    rng, watch, failures = random.Random(seed), Watch(), []
    lock.LEASE_SECONDS = 0.3  # a lock of nonsense is waited for
    runs = make_runs(root / "runs")
    importable, outside = root / "importable", root / "outside"
    importable.mkdir()
    (importable / f"{EVIL}.py").write_text("raise SystemExit('the evil module was imported')")
    sys.path.append(str(importable))
    for number in range(n):
        name = rng.choice(sorted(runs))
        case = root / f"case-{number}"
        shutil.copytree(runs[name], case, symlinks=True)
        shutil.rmtree(outside, ignore_errors=True)
        (outside / "folder").mkdir(parents=True)
        shutil.copy(runs[name] / "weights.safetensors", outside / "file.safetensors")
        shutil.copy(runs[name] / "weights.safetensors", outside / "folder" / "a.safetensors")
        shutil.copy(runs[name] / "metrics.jsonl", outside / "folder" / "metrics.jsonl")
        before = _contents(outside)
        try:
            what = change(case, rng, outside)
        except (IndexError, RecursionError, OverflowError, ValueError, TypeError):
            shutil.rmtree(case)
            continue  # the change itself was not possible, such as one to a file that is not there
        for action, do in actions(case).items():
            problem = _attempt(do, watch, case)
            if problem:
                failures.append(f"{name}, {what}: {action}: {problem}")
        if _contents(outside) != before:
            failures.append(f"{name}, {what}: files outside changed")
        shutil.rmtree(case)
        on_case(number + 1)
    return failures


def _attempt(do: Callable[[], Any], watch: Watch, case: Path) -> str:
    def hang(number: int, frame: Any) -> None:
        raise _Hang

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    problem = ""
    try:
        with warnings.catch_warnings(), watch.within(case, Path(tempfile.gettempdir()) / "jax"):
            warnings.simplefilter("ignore")
            do()
    except OWN_ERRORS as error:
        if "\x1b" in str(error) or "\n" in str(error).strip():
            problem = f"a message that is not one plain line: {str(error)!r}"
    except _Hang:
        problem = f"took longer than {SECONDS} s"
    except BaseException as error:
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        problem = f"{type(error).__name__}: {str(error)[:200]}\n{where}"
    finally:
        signal.alarm(0)
    return "; ".join([*([problem] if problem else []), *watch.seen])


def _contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin = time.monotonic()

    def show(done: int) -> None:
        if done % 50 == 0:
            print(f"{done} of {options.files}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        failures = fuzz(options.files, options.seed, Path(folder), show)
    print("\n".join(failures))
    kinds = Counter(failure.split(": ")[-1].split("\n")[0][:60] for failure in failures)
    print(f"{options.files} changed files, {len(failures)} failures", *kinds.most_common(20), sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
