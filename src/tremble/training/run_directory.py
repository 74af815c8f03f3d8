"""A run's directory: what is where, what survives a crash, and what two equal runs have in common.

config.json           the settings in full
metrics.jsonl         a row every so many steps
episodes.jsonl        a row for every training episode
evaluations.jsonl     a row for every evaluation
weights.safetensors   the newest parameters
best.safetensors      those of the best evaluation so far, the later of two equals
checkpoints/          the newest two states, to go on from
checkpoints/blocks/   the pictures of replay, in blocks that are written once and that both states may share
timing.jsonl          wall-clock figures: the only file that differs between two equal runs
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tremble.replay.frame_store import FrameStore
from tremble.training import checkpoint
from tremble.training.checkpoint import CheckpointError, Contents

WEIGHTS, BEST = "weights.safetensors", "best.safetensors"
LOGS = ("metrics", "episodes", "evaluations")
KEPT = 2
"""Checkpoints kept: the newest, and the one before it in case the newest is damaged."""
UNFINISHED = (
    ".config.json.*",
    ".*.safetensors.*",
    ".tmp??????",
    "checkpoints/.step-*",
    "checkpoints/.tmp??????",
    "checkpoints/blocks/.*",
)
"""What a killed process leaves of a file it was writing; those of ``.tmp`` are safetensors' own."""


class RunFiles:
    """The directory of one run."""

    def __init__(self, directory: Path):
        """Nothing is written yet."""
        if directory.exists() and not directory.is_dir():
            raise CheckpointError(f"{directory} is a file; give a directory")
        self.directory = directory
        self._blocks: list[str] = []
        """Names of the blocks that the newest checkpoint refers to."""
        self._began = time.monotonic()

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.directory / "checkpoints").glob("step-*.safetensors"))

    def append(self, log: str, row: Mapping[str, Any]) -> None:
        """Add a line to a log and hand it to the operating system at once."""
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

    def save(
        self,
        step: int,
        trees: Mapping[str, Any],
        facts: Mapping[str, Any],
        params: Any,
        described: Mapping[str, Any],
        large: FrameStore | None = None,
    ) -> None:
        """Write a checkpoint that knows how long the logs were, the weights, and the settings.

        Of ``large`` only the blocks that changed since the last checkpoint are written, before the checkpoint that
        refers to them; those that no checkpoint refers to are removed after it.
        """
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
        checkpoint.save(folder / f"step-{step:010d}.safetensors", trees, meta)
        checkpoint.save(self.directory / WEIGHTS, {"params": params}, described)
        for old in self.checkpoints()[:-KEPT]:
            old.unlink(missing_ok=True)
        if large is not None:
            large.saved()
            self._blocks = meta["blocks"]
            self._remove_unused_blocks()
        self.append("timing", {"step": step, "seconds": round(time.monotonic() - self._began, 3)})

    def save_best(self, params: Any, described: Mapping[str, Any]) -> None:
        """Keep the parameters of the best evaluation.

        A run that goes on from before it makes that evaluation again, and with it this file.
        """
        checkpoint.save(self.directory / BEST, {"params": params}, described)

    def newest(self, check_blocks: bool = True) -> Contents | None:
        """The newest undamaged checkpoint, None if there never was one; the logs are cut to what it knows.

        Blocks are read once to check them, and again when they are needed: they may be larger than what memory has
        room for twice. Whoever wants to know settings only need not have them checked.
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
        """Blocks that no checkpoint refers to: of older ones, or of one that was never finished."""
        used: set[str] = set()
        for path in self.checkpoints():
            try:
                used |= set(checkpoint.read_meta(path).get("blocks", []))
            except CheckpointError:
                return  # whoever reads it will report it; until then nothing is thrown away
        for path in (self.directory / "checkpoints" / checkpoint.BLOCKS).glob("*.safetensors"):
            if path.stem not in used:
                path.unlink(missing_ok=True)

    def _cut_logs(self, contents: Contents) -> None:
        """Forget what was logged after the checkpoint: it will be made again."""
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
    """In place of a directory, for a run that is not kept."""

    def append(self, log: str, row: Mapping[str, Any]) -> None:
        """Nothing is written."""

    def save_best(self, params: Any, described: Mapping[str, Any]) -> None:
        """Nothing is written."""

    def newest(self, check_blocks: bool = True) -> None:
        """There never was a checkpoint."""

    def rows(self, log: str) -> list[dict[str, Any]]:
        """No log has a line."""
        return []
