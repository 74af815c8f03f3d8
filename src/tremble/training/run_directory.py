"""The files of a run's directory, and how they stay consistent when the process is killed.

config.json           the settings in full
metrics.jsonl         a row every ``record_every`` steps
episodes.jsonl        a row for every training episode
evaluations.jsonl     a row for every evaluation
weights.safetensors   the newest parameters
best.safetensors      the parameters of the best evaluation so far (ties: the latest)
checkpoints/          the newest two states, to resume from
checkpoints/blocks/   the pictures of replay, in blocks that are written once and may be shared by both states
timing.jsonl          wall-clock time: the only file that differs between two equal runs
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

from tremble.training import checkpoint
from tremble.training.checkpoint import CheckpointError, Contents
from tremble.training.loop import Loop

WEIGHTS, BEST = "weights.safetensors", "best.safetensors"
LOGS = ("metrics", "episodes", "evaluations")
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

    def __init__(self, directory: Path):
        """Open; nothing is written yet."""
        if directory.exists() and not directory.is_dir():
            raise CheckpointError(f"{directory} is a file; give a directory")
        self.directory = directory
        self._blocks: list[str] = []
        """Names of the blocks of the newest checkpoint."""
        self._began = time.monotonic()

    def checkpoints(self) -> list[Path]:
        """Paths of all checkpoints, oldest first."""
        return sorted((self.directory / "checkpoints").glob("step-*.safetensors"))

    def append(self, log: str, row: Mapping[str, Any]) -> None:
        """Append a line to a log and flush it to the operating system."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with open(self.directory / f"{log}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise CheckpointError(f"could not write {self.directory / log}.jsonl: {error}") from error

    def rows(self, log: str) -> list[dict[str, Any]]:
        """The lines of a log."""
        path = self.directory / f"{log}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def save(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write a checkpoint of the loop, with the present lengths of the logs, the weights and the settings.

        Of ``loop.blocks`` only those that changed since the last checkpoint are written, before the checkpoint that
        refers to them; blocks that no checkpoint refers to are removed after it.
        """
        trees, facts = loop.state()
        large = loop.blocks
        checkpoint.write_text(self.directory / "config.json", json.dumps(described, indent=2) + "\n")
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
        checkpoint.save(self.directory / WEIGHTS, {"params": jax.device_get(loop.params)}, described)
        for old in self.checkpoints()[:-KEPT]:
            old.unlink(missing_ok=True)
        if large is not None:
            large.saved()
            self._blocks = meta["blocks"]
            self._remove_unused_blocks()
        self.append("timing", {"step": loop.t, "seconds": round(time.monotonic() - self._began, 3)})

    def save_best(self, params: Any, described: Mapping[str, Any]) -> None:
        """Write the parameters of the best evaluation.

        A run that resumes from an earlier checkpoint repeats that evaluation, and writes this file again.
        """
        checkpoint.save(self.directory / BEST, {"params": params}, described)

    def best_weights(self) -> Path | None:
        """The file of `save_best`; None if it was never written."""
        path = self.directory / BEST
        return path if path.exists() else None

    def newest(self, check_blocks: bool = True) -> Contents | None:
        """The newest undamaged checkpoint, None if there never was one; the logs are cut to their length at its time.

        Blocks are read here to check them, and again when they are needed, because two copies may not fit in memory.
        To read settings only, ``check_blocks=False`` skips that.
        """
        for unfinished in UNFINISHED:
            for path in self.directory.glob(unfinished):
                path.unlink(missing_ok=True)  # a process was killed while writing it
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
            self._cut_logs(contents)
            self._blocks = contents.meta.get("blocks", [])
            self._remove_unused_blocks()
            return contents
        return None

    def _remove_unused_blocks(self) -> None:
        """Remove blocks that no checkpoint refers to: of deleted checkpoints, or of one that was never finished."""
        used: set[str] = set()
        for path in self.checkpoints():
            try:
                used |= set(checkpoint.read_meta(path).get("blocks", []))
            except CheckpointError:
                return  # reading that checkpoint reports the damage; until then keep every block
        for path in (self.directory / "checkpoints" / checkpoint.BLOCKS).glob("*.safetensors"):
            if path.stem not in used:
                path.unlink(missing_ok=True)

    def _cut_logs(self, contents: Contents) -> None:
        """Remove what was logged after the checkpoint: the resumed run logs it again."""
        for log, length in contents.meta["logs"].items():
            path = self.directory / f"{log}.jsonl"
            there = path.stat().st_size if path.exists() else 0
            if there < length:
                raise CheckpointError(
                    f"{path} is shorter than when {contents.path.name} was written: somebody cut it. "
                    "Put it back, or start a new run."
                )
            if there > length:
                os.truncate(path, length)
        for later in self.checkpoints():
            if later > contents.path:
                later.unlink()

    def _synced_length(self, log: str) -> int:
        path = self.directory / f"{log}.jsonl"
        if not path.exists():
            return 0
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        return path.stat().st_size


class Unsaved:
    """Null object in place of `RunFiles` for a run without a directory."""

    def append(self, log: str, row: Mapping[str, Any]) -> None:
        """Write nothing."""

    def save(self, loop: Loop, described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def save_best(self, params: Any, described: Mapping[str, Any]) -> None:
        """Write nothing."""

    def best_weights(self) -> None:
        """There is no file."""

    def newest(self, check_blocks: bool = True) -> None:
        """There is no checkpoint."""

    def rows(self, log: str) -> list[dict[str, Any]]:
        """Logs are empty."""
        return []
