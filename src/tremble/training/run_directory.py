"""The files of a run's directory, and how they stay consistent when the process is killed.

config.json           the settings in full
metrics.jsonl         a row every ``record_every`` steps
episodes.jsonl        a row for every training episode
evaluations.jsonl     a row for every evaluation
final.jsonl           the evaluation after training: a row for the last weights, one for the best
steps.safetensors     where the run keeps them, at its end: the log of all steps, and snapshots of predictions
weights.safetensors   the newest parameters
best.safetensors      the parameters of the best evaluation so far (ties: the latest)
checkpoints/          the newest two states, to resume from
checkpoints/blocks/   the pictures of replay, in blocks that are written once and may be shared by both states
timing.jsonl          wall-clock time: differs between two equal runs
lock-N.json           who trains here and at which step; differs too (`tremble.training.lock`)
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from tremble import escape
from tremble.records import CheckpointError, WriteError, parse, read_rows, read_text
from tremble.training import checkpoint
from tremble.training.checkpoint import Contents
from tremble.training.lock import Lock
from tremble.training.loop import Loop

WEIGHTS, BEST, STEPS = "weights.safetensors", "best.safetensors", "steps.safetensors"
LOGS = ("metrics", "episodes", "evaluations", "final")
KEPT = 2
"""Checkpoints kept: the newest, and its predecessor in case the newest is damaged."""
UNFINISHED = (
    ".config.json.*",
    ".*.safetensors.*",
    ".tmp??????",
    "checkpoints/.step-*",
    "checkpoints/.tmp??????",
    "checkpoints/blocks/.*",
)
"""Names of files that a killed process was writing; ``.tmp`` are safetensors' temporary files."""


class RunFiles:
    """The directory of one run."""

    def __init__(self, directory: Path, lock: Lock | None = None):
        """Open; nothing is written yet. A ``lock`` that the caller holds is used and stays the caller's."""
        if directory.exists() and not directory.is_dir():
            raise CheckpointError(f"{directory} is a file; give a directory")
        self.directory = directory
        self._lock, self._lent = lock, lock is not None
        self._blocks: list[str] = []
        """Names of the blocks of the newest checkpoint."""
        self._began = time.monotonic()

    def lock(self) -> None:
        """Become the only process that writes here; an error names the one that does already."""
        if self._lock is None:
            self._lock = Lock.acquire(self.directory)

    def unlock(self) -> None:
        """Let others write, unless the lock is the caller's."""
        if self._lock is not None and not self._lent:
            self._lock.release()
            self._lock = None

    def show(self, doing: str, step: int) -> None:
        """What the run is doing, for readers of the lock file."""
        if self._lock is not None:
            self._lock.show(doing, step)

    def _check_owner(self) -> None:
        """Before every write: a process that was suspended may have lost the directory."""
        if self._lock is not None:
            self._lock.check()

    def checkpoints(self) -> list[Path]:
        """Paths of all checkpoints, oldest first."""
        checkpoint.require_folder(self.directory / "checkpoints")
        checkpoint.require_folder(self.directory / "checkpoints" / checkpoint.BLOCKS)
        return sorted((self.directory / "checkpoints").glob("step-*.safetensors"))

    def describe(self, described: Mapping[str, Any]) -> None:
        """Write ``config.json``, before the first log, so that the logs are known to be this run's."""
        self._check_owner()
        checkpoint.write_text(self.directory / "config.json", json.dumps(described, indent=2) + "\n")

    def append(self, log: str, row: Mapping[str, Any]) -> None:
        """Append a line to a log and flush it to the operating system."""
        self._check_owner()
        path = self.directory / f"{log}.jsonl"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with open(checkpoint.open_log(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "w", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
        except OSError as error:
            raise WriteError(f"could not write {path}: {error}") from error

    def rows(self, log: str) -> list[dict[str, Any]]:
        """The lines of a log."""
        return read_rows(self.directory / f"{log}.jsonl", log)

    def save(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write a checkpoint of the loop, with the present lengths of the logs, the weights and the settings.

        Of ``loop.blocks`` only those that changed since the last checkpoint are written, before the checkpoint that
        refers to them; blocks that no checkpoint refers to are removed after it.
        """
        self._check_owner()
        trees, facts = loop.state()
        large = loop.blocks
        lengths = {log: self._synced_length(log) for log in LOGS}
        meta = {**described, "facts": facts, "logs": lengths}
        folder = self.directory / "checkpoints"
        if large is not None:
            changed = set(large.changed()) | set(range(len(self._blocks), large.n_blocks))
            meta["blocks"] = [
                checkpoint.save_block(folder, large.block(k)) if k in changed else self._blocks[k]
                for k in range(large.n_blocks)
            ]
        checkpoint.save(folder / f"step-{loop.t:010d}.safetensors", trees, meta)
        self.save_weights(loop, described)
        for old in self.checkpoints()[:-KEPT]:
            _remove(old)
        if large is not None:
            large.saved()
            self._blocks = meta["blocks"]
            self._remove_unused_blocks()
        self.append("timing", {"step": loop.t, "seconds": round(time.monotonic() - self._began, 3)})

    def save_weights(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write the newest parameters."""
        self._check_owner()
        parts = {"params": jax.device_get(loop.params), "statistics": loop.statistics()}
        checkpoint.save(self.directory / WEIGHTS, parts, described)

    def save_best(self, parts: Mapping[str, Any], described: Mapping[str, Any]) -> None:
        """Write the parameters of the best evaluation, with what else `save_weights` writes.

        A run that resumes from an earlier checkpoint repeats that evaluation, and writes this file again.
        """
        self._check_owner()
        checkpoint.save(self.directory / BEST, parts, described)

    def save_steps(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write the log of steps and the snapshots, if the loop keeps any."""
        groups = {"log": loop.step_log(), "snapshots": loop.snapshots()}
        if any(groups.values()):
            self._check_owner()
            checkpoint.save(self.directory / STEPS, groups, described)

    def best_weights(self) -> Path | None:
        """The file of `save_best`; None if it was never written."""
        path = self.directory / BEST
        return path if path.exists() else None

    def described(self) -> Contents:
        """What the newest undamaged checkpoint says, or ``config.json`` where there is none yet; changes nothing."""
        contents = self._newest(check_blocks=False)
        if contents is not None:
            return contents
        path = self.directory / "config.json"
        if not path.exists():
            raise CheckpointError(f"there is no run to resume in {escape.plain(self.directory)}: no config.json")
        return Contents(path, self._config(), {})

    def restore_point(self, described: Mapping[str, Any], lengthen: bool = False) -> Contents | None:
        """The newest undamaged checkpoint of the run that is described; None if it has none yet.

        With ``lengthen`` it may be of the same run with fewer steps.

        Everything that was written after it is removed: the run writes it again. A directory that holds a run with
        other settings is refused.
        """
        self.checkpoints()  # refuses folders that are links, before anything is removed in them
        for unfinished in UNFINISHED:
            for path in self.directory.glob(unfinished):
                _remove(path)  # a process was killed while writing it
        contents = self._newest(check_blocks=True)
        if contents is None:
            self._empty_logs(described, lengthen)
            return None
        self._refuse_others(described, contents.meta, lengthen)
        self._cut_logs(contents)
        if lengthen:
            _remove(self.directory / STEPS)
        self._blocks = checkpoint.block_names(contents.path, contents.meta)
        self._remove_unused_blocks()
        return contents

    def _newest(self, check_blocks: bool) -> Contents | None:
        """Blocks are read to check them, and again when they are needed: two copies may not fit in memory."""
        paths = self.checkpoints()
        for path in reversed(paths):
            try:
                contents = checkpoint.read(path)
                for _ in contents.blocks() if check_blocks else ():
                    pass
            except CheckpointError as error:
                if path == paths[0]:
                    raise
                warnings.warn(f"{error}. Using the checkpoint before it.", stacklevel=2)
                continue
            return contents
        return None

    def _config(self) -> dict[str, Any]:
        path = self.directory / "config.json"
        meta = parse(read_text(path), escape.plain(path))
        if not isinstance(meta, dict):
            raise CheckpointError(f"{escape.plain(path)} does not describe a run")
        return meta

    def _empty_logs(self, described: Mapping[str, Any], lengthen: bool) -> None:
        """Without a checkpoint the run starts anew, and logs its first steps again."""
        logs = [path for log in LOGS if (path := self.directory / f"{log}.jsonl").exists() or path.is_symlink()]
        if (self.directory / "config.json").exists():
            self._refuse_others(described, self._config(), lengthen)
        elif logs:
            raise CheckpointError(
                f"{logs[0]} exists, but {self.directory} holds no run: choose another directory, or move the file away"
            )
        for path in logs:
            _cut(path, 0)
        _remove(self.directory / BEST)

    def _refuse_others(self, here: Mapping[str, Any], there: Mapping[str, Any], lengthen: bool) -> None:
        """Refuse the directory of another run; say which of the settings that the command gives differ, and how."""
        different = _differences(here["settings"], there.get("settings"))
        different |= _differences(here.get("parts"), there.get("parts"))  # two kinds may have the same settings
        if lengthen:
            different.pop("steps", None)  # `resume` has refused fewer steps
        if not different:
            return
        given = _differences(here["spec"], there.get("spec"))
        where, shown = escape.plain(self.directory), _chosen(different, given) or different
        mine, theirs = different.get("steps", (0, 0))
        if (
            different.keys() <= {"steps", "evaluate_every"} and type(theirs) is int and mine > theirs
        ):  # by default a tenth of the steps
            raise CheckpointError(
                f"{where} holds this run with {theirs:,} steps. To lengthen it: tremble resume {where} --steps {mine} "
                f"(in Python tremble.resume({str(self.directory)!r}, steps={mine}))"
            )
        listed = "; ".join(
            f"{escape.plain(n)} is {_shown(b)} there and {_shown(a)} here" for n, (a, b) in shown.items()
        )
        raise CheckpointError(
            f"{where} holds another run: {listed}. Choose another directory (--out), repeat that run's settings to "
            f"continue it, or continue it as it is: tremble resume {where}"
        )

    def _remove_unused_blocks(self) -> None:
        """Remove blocks that no checkpoint refers to: of deleted checkpoints, or of one that was never finished."""
        used: set[str] = set()
        for path in self.checkpoints():
            try:
                used |= set(checkpoint.block_names(path, checkpoint.read_meta(path)))
            except CheckpointError:
                return  # reading that checkpoint reports the damage; until then keep every block
        for path in (self.directory / "checkpoints" / checkpoint.BLOCKS).glob("*.safetensors"):
            if path.stem not in used:
                _remove(path)

    def _cut_logs(self, contents: Contents) -> None:
        """Remove what was logged after the checkpoint: the resumed run logs it again."""
        lengths = contents.meta.get("logs")
        if not isinstance(lengths, dict) or lengths.keys() != set(LOGS):
            raise CheckpointError(f"{contents.path}: logs must be the lengths of {', '.join(LOGS)}")
        for log in LOGS:
            path, length = self.directory / f"{log}.jsonl", lengths[log]
            if type(length) is not int or length < 0:
                raise CheckpointError(f"{contents.path}: logs.{log} must be a length, got {length!r}")
            there = path.lstat().st_size if path.exists() else 0
            if there < length:
                raise CheckpointError(
                    f"{path} is shorter than when {contents.path.name} was written: somebody cut it. "
                    "Put it back, or start a new run."
                )
            if there > length:
                _cut(path, length)
        for later in self.checkpoints():
            if later > contents.path:
                _remove(later)

    def _synced_length(self, log: str) -> int:
        path = self.directory / f"{log}.jsonl"
        if not path.exists():
            return 0
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        return path.stat().st_size


def _differences(here: Any, there: Any) -> dict[str, tuple[Any, Any]]:
    """The entries in which two trees of settings differ: both values, None where there is none."""
    mine, theirs = _flatten(here), _flatten(there)
    names = sorted(mine.keys() | theirs.keys())
    return {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}


def _chosen(different: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings that differ those that were given, with the values in force: others follow from them."""
    resolved = {path.rpartition(".")[2]: pair for path, pair in different.items()}
    chosen = {name.rpartition(".")[2]: resolved.get(name.rpartition(".")[2]) for name in given}
    in_force = {name: pair for name, pair in chosen.items() if pair is not None}
    # Options may be given in other words that mean the same, or name a table that makes all the differences.
    return in_force or {name: pair for name, pair in given.items() if "_options." not in name}


def _shown(value: Any) -> str:
    return "not set" if value is None else escape.plain(value)[:60]


def _flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in (tree if isinstance(tree, Mapping) else {}).items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _remove(path: Path) -> None:
    """Remove a file, or a link and not what it leads to."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{path} is in the way and cannot be removed: {error}") from error


def _cut(path: Path, length: int) -> None:
    file = checkpoint.open_log(path, os.O_WRONLY)
    try:
        os.ftruncate(file, length)
    finally:
        os.close(file)


class Unsaved:
    """Null object in place of `RunFiles` for a run without a directory."""

    def lock(self) -> None:
        """Nobody else can write."""

    def unlock(self) -> None:
        """Nothing to let go."""

    def show(self, doing: str, step: int) -> None:
        """Show nothing."""

    def describe(self, described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def append(self, log: str, row: Mapping[str, Any]) -> None:
        """Write nothing."""

    def save(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def save_weights(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def save_best(self, parts: Mapping[str, Any], described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def save_steps(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def best_weights(self) -> None:
        """There is no file."""

    def restore_point(self, described: Mapping[str, Any], lengthen: bool = False) -> None:
        """There is no checkpoint."""

    def rows(self, log: str) -> list[dict[str, Any]]:
        """Logs are empty."""
        return []
