"""Pytrees on disk: one safetensors file, versioned, atomic, and unable to run code when loaded.

Arrays are stored under their path in the tree (``state/learner/params/head/weight``); what is not an array (settings,
counters) is JSON in the file's header. Later versions may add groups; readers ignore groups they do not know.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FORMAT = 2
"""2: one header entry. Format 1 had two, and safetensors writes several in no fixed order, so that equal runs could
have unequal files; it is still read."""
T = TypeVar("T")


class CheckpointError(RuntimeError):
    """A file that cannot be used; the message says which, why, and what to do."""


def save(path: Path, trees: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write named pytrees and JSON-ready metadata; the file appears whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    for group, tree in trees.items():
        for key, leaf in jax.tree_util.tree_leaves_with_path(tree):
            arrays[f"{group}/{_name(key)}"] = np.asarray(leaf, order="C")
    header = {"tremble": json.dumps({"format": FORMAT, "meta": meta})}
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(arrays, temporary, metadata=header)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"could not write {path}: {error}. What was saved before is untouched; free some space and run again."
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def read_meta(path: Path) -> dict[str, Any]:
    """The metadata of a file, after checking that it is one of ours."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
        if "tremble_format" in header:
            version, meta = int(header["tremble_format"]), json.loads(header["meta"])
        else:
            own = json.loads(header.get("tremble", "{}"))
            version, meta = own.get("format"), own.get("meta")
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged or not a tremble file ({error}); delete it to start over") from error
    if not isinstance(version, int) or not isinstance(meta, dict):
        raise CheckpointError(f"{path} is a safetensors file, but not one of tremble's")
    if version > FORMAT:
        raise CheckpointError(f"{path} has format {version}, newer than this version reads ({FORMAT}); upgrade tremble")
    return meta


def load(path: Path, like: Mapping[str, T]) -> dict[str, T]:
    """Read pytrees shaped ``like`` those given (arrays or `jax.ShapeDtypeStruct`); shapes and types must agree."""
    read_meta(path)
    trees: dict[str, T] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            present = set(file.keys())
            for group, tree in like.items():
                leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
                loaded = []
                for key, leaf in leaves:
                    name = f"{group}/{_name(key)}"
                    if name not in present:
                        raise CheckpointError(f"{path} has no {name}: it belongs to other settings")
                    array = file.get_tensor(name)
                    if array.shape != tuple(leaf.shape) or array.dtype != np.dtype(leaf.dtype):
                        raise CheckpointError(
                            f"{path}: {name} is {array.dtype}{list(array.shape)}, "
                            f"expected {np.dtype(leaf.dtype)}{list(leaf.shape)}: it belongs to other settings"
                        )
                    loaded.append(array)
                trees[group] = jax.tree_util.tree_unflatten(structure, loaded)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); delete it to start over") from error
    return trees


def load_group(path: Path, group: str) -> dict[str, np.ndarray]:
    """All arrays of one flat group, whatever their shapes."""
    read_meta(path)
    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if name.startswith(f"{group}/")]  # noqa: SIM118 (not a dict)
            return {name.removeprefix(f"{group}/"): file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); delete it to start over") from error


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"could not write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
