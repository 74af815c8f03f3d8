"""Pytrees in safetensors files: versioned, written atomically, and loaded without executing code.

Arrays are stored under their path in the tree (``state/learner/params/head/weight``); settings and counters are JSON in
the file's header, in one entry, because safetensors writes several in no fixed order.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tremble.records import CheckpointError, WriteError, as_record, parse
from tremble.training.machine import MadeWith

FORMAT = 7
"""The only format that is read."""
T = TypeVar("T")


@dataclass(frozen=True)
class Contents:
    """Contents of a file whose checksum is right."""

    path: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def record(self, name: str, kind: Any) -> Any:
        """A part of the metadata as a dataclass or a list of them, checked."""
        return as_record(self.meta.get(name), kind, f"{self.path}: {name}")

    def settings(self) -> dict[str, Any]:
        """The agent's settings, flat, as `tremble.settings.describe` gives them."""
        return as_record(
            self.record("settings", dict[str, Any]).get("agent_settings"),
            dict[str, Any],
            f"{self.path}: agent_settings",
        )

    def made_with(self) -> list[MadeWith]:
        """What the numbers were computed with, an entry for each change on the way."""
        entries: list[MadeWith] = self.record("made_with", list[MadeWith])
        if not entries:
            raise CheckpointError(f"{self.path}: made_with is empty")
        return entries

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What goes wrong while a run is restored from these contents is a fault of the file."""
        try:
            yield
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError) as error:
            raise CheckpointError(f"{self.path} does not fit this run: {error}") from error

    def blocks(self) -> Iterator[np.ndarray]:
        """The blocks of large memory that this file refers to, in order; each is a file of its own."""
        for name in block_names(self.path, self.meta):
            yield read_block(self.path.parent, name)

    def group(self, name: str) -> dict[str, np.ndarray]:
        """All arrays of one flat group, by name."""
        return {key.removeprefix(f"{name}/"): x for key, x in self.arrays.items() if key.startswith(f"{name}/")}

    def tree(self, group: str, like: T) -> T:
        """A pytree shaped ``like`` the one given (arrays or `jax.ShapeDtypeStruct`); shapes and types must agree."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(like)
        loaded = []
        for key, leaf in leaves:
            name = f"{group}/{_name(key)}"
            if name not in self.arrays:
                raise CheckpointError(f"{self.path} has no {name}: it belongs to other settings")
            array = self.arrays[name]
            if array.shape != tuple(leaf.shape) or array.dtype != np.dtype(leaf.dtype):
                raise CheckpointError(
                    f"{self.path}: {name} is {array.dtype}{list(array.shape)}, "
                    f"expected {np.dtype(leaf.dtype)}{list(leaf.shape)}: it belongs to other settings"
                )
            loaded.append(array)
        tree: T = jax.tree_util.tree_unflatten(structure, loaded)
        return tree


def save(path: Path, trees: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write named pytrees and JSON-ready metadata, atomically."""
    arrays: dict[str, np.ndarray] = {}
    for group, tree in trees.items():
        for key, leaf in jax.tree_util.tree_leaves_with_path(tree):
            arrays[f"{group}/{_name(key)}"] = np.asarray(leaf, order="C")
    meta = json.loads(json.dumps(meta, allow_nan=False))
    header = {"tremble": json.dumps({"format": FORMAT, "digest": _digest(meta, arrays), "meta": meta})}
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        require_folder(path.parent)
        temporary, mode = _temporary(path)
        save_file(arrays, temporary, metadata=header)
        os.chmod(temporary, mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise WriteError(
            f"could not write {path}: {error}. What was saved before is untouched; free some space and run again."
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> tuple[Path, int]:
    """A new empty file beside ``path``, and the permissions it got from the user's umask."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return temporary, stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)


def read(path: Path) -> Contents:
    """Read a file and verify its checksum."""
    meta, digest = _header(path)
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); delete it to start over") from error
    if digest != _digest(meta, arrays):
        raise CheckpointError(f"{path} is damaged (its checksum does not fit its contents); delete it to start over")
    return Contents(path, meta, arrays)


BLOCKS = "blocks"
"""The folder for blocks of large memory, next to the checkpoints; each is named by its contents and written once."""


def save_block(folder: Path, block: np.ndarray) -> str:
    """Write a block unless it exists; returns its name for `read_block`."""
    name = _digest({}, {"block": block})[:32]
    path = folder / BLOCKS / f"{name}.safetensors"
    if not path.exists():
        save(path, {"block": block}, {})
    return name


def read_block(folder: Path, name: str) -> np.ndarray:
    """Read a block and verify that its contents match its name."""
    path = folder / BLOCKS / f"{name}.safetensors"
    if not path.exists():
        raise CheckpointError(f"{path} is missing")
    block = read(path).arrays.get("block/")
    if block is None or _digest({}, {"block": block})[:32] != name:
        raise CheckpointError(f"{path} is damaged (it holds another block)")
    return block


def read_meta(path: Path) -> dict[str, Any]:
    """The metadata of a file; arrays are not read."""
    return _header(path)[0]


def block_names(path: Path, meta: Mapping[str, Any]) -> list[str]:
    """The blocks that a file's metadata refers to: digests, never paths."""
    names = meta.get("blocks", [])
    if not isinstance(names, list) or not all(isinstance(n, str) and re.fullmatch("[0-9a-f]{32}", n) for n in names):
        raise CheckpointError(f"{path}: blocks must be a list of digests")
    return names


def require_folder(path: Path) -> None:
    """Refuse a folder that is a link: what is written or deleted must stay inside the run's directory."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise CheckpointError(f"{path} is a link or a file where a folder belongs; remove it")


def open_log(path: Path, flags: int) -> int:
    """Open a regular file for appending or cutting; links (also hard ones) are refused, never followed."""
    try:
        file = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        if path.is_symlink():
            raise CheckpointError(f"{path} is a link; tremble writes to regular files only: remove it") from error
        raise WriteError(f"could not write {path}: {error}") from error
    facts = os.fstat(file)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(file)
        raise CheckpointError(f"{path} is not a regular file of its own (a link or a device): remove it")
    return file


def _header(path: Path) -> tuple[dict[str, Any], str | None]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would never end
            raise CheckpointError(f"{path} is not a regular file")
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged or not a tremble file ({error}); delete it to start over") from error
    own = parse(header.get("tremble", "{}"), f"the header of {path}")
    version, meta, digest = (own.get(name) if isinstance(own, dict) else None for name in ("format", "meta", "digest"))
    if type(version) is not int or not isinstance(meta, dict):
        raise CheckpointError(f"{path} is a safetensors file, but not one of tremble's")
    if version != FORMAT:
        hint = "upgrade tremble" if version > FORMAT else "train the run again, or use the version that wrote it"
        raise CheckpointError(f"{path} has format {version}, this version reads {FORMAT}: {hint}")
    return meta, digest


def _digest(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of metadata and arrays: a damaged file may still be well-formed."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, _ = _temporary(path)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError(f"could not write {path}: {error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
