"""Read a sweep from a TOML file, and write one.

    agents = ["pqr", "qrdqn"]
    envs = ["CartPole-v1", "LunarLander-v3"]
    steps = 50_000
    seeds = 5

    [grid]
    n_step = [1, 3]

The fields are those of `tremble.Sweep`; tables like ``[grid]``, ``[settings]`` and ``[search]`` are its mappings, and
``[[cells]]`` are cells written out.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tremble import escape
from tremble.settings import SettingsError, nearest
from tremble.sweep_records import Cell
from tremble.sweeps.folder import as_sweep
from tremble.sweeps.sweep import Search, Sweep


def read_sweep(path: Path | str) -> Sweep:
    """The sweep in a TOML file; an error that names the file, the field and the nearest right name."""
    path, where = Path(path), escape.plain(path)
    try:
        with path.open("rb") as file:
            fields = tomllib.load(file)
    except FileNotFoundError:
        raise SettingsError(f"there is no file {where}") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{where} cannot be read as TOML: {error}") from error
    _check_names(fields, Sweep, where)
    if isinstance(fields.get("search"), Mapping):
        _check_names(fields["search"], Search, f"{where}: search")
    for cell in fields.get("cells", []) if isinstance(fields.get("cells"), list) else []:
        _check_names(cell, Cell, f"{where}: cells")
    fields.setdefault("name", path.stem)
    try:
        return as_sweep(fields, where)
    except SettingsError as error:
        raise error if where in str(error) else SettingsError(f"{where}: {error}") from error


def _check_names(fields: Any, kind: type, where: str) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    if not isinstance(fields, Mapping):
        raise SettingsError(f"{where} must be a table with the fields {', '.join(names)}")
    for name in fields:
        if name not in names:
            raise SettingsError(f"{where}: there is no field {escape.plain(name)!r}; {nearest(str(name), names)}")


def as_toml(sweep: Sweep) -> str:
    """A sweep as a file: the fields that are not the usual ones."""
    lines, tables = [], []
    for field in dataclasses.fields(Sweep):
        value = getattr(sweep, field.name)
        usual = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if value == usual or value is None:
            continue
        if field.name == "cells":
            tables += [f"\n[[cells]]\n{_pairs(_given(cell))}" for cell in value]
        elif field.name == "search":
            tables.append(f"\n[search]\n{_pairs(_given(value))}")
        elif isinstance(value, Mapping):
            tables.append(f"\n[{field.name}]\n{_pairs(value)}")
        else:
            lines.append(f"{field.name} = {_toml(value)}\n")
    return "".join(lines) + "".join(tables)


def _given(record: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(record).items() if value is not None and value != {}}


def _pairs(fields: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_toml(value)}\n" for name, value in fields.items() if value is not None)


def _toml(value: Any) -> str:
    """A value as TOML writes it; text and numbers are as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(part) for part in value if part is not None) + "]"
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)
