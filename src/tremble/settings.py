"""Settings as data: read them from an agent or environment, change them by name, reject names that do not exist.

Everything here works on dataclasses, which `equinox.Module`s are, so that importing this module imports no JAX.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Real
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from tremble.extras import EXTRAS, pip_line


@runtime_checkable
class Configurable(Protocol):
    """A dataclass whose fields are settings, or parts that have settings of their own."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


C = TypeVar("C", bound=Configurable)


class SettingsError(ValueError):
    """A setting that does not exist, or a value it cannot have; the message names the nearest right one."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers a setting may be, written into its type: ``gamma: Annotated[Scalar, Range(0, 1)]``."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether the lower end is left out."""

    def __contains__(self, number: float) -> bool:
        return (self.low < number if self.above else self.low <= number) and number <= self.high

    def __str__(self) -> str:
        lower = f"{'above' if self.above else 'at least'} {self.low:g}" if math.isfinite(self.low) else ""
        if not math.isfinite(self.high):
            return lower or "a finite number"
        if not lower:
            return f"at most {self.high:.10g}"
        return (
            f"between {self.low:g} and {self.high:.10g}" if not self.above else f"{lower} and at most {self.high:.10g}"
        )


COUNT = Range(1)
SIZE = Range(1, 65_536)
"""Of a layer, a batch, a set of atoms: more is a mistake, or somebody else's file that wants all memory."""
NON_NEGATIVE = Range(0)
POSITIVE = Range(0, above=True)
SHARE = Range(0, 1)
POSITIVE_SHARE = Range(0, 1, above=True)
ANY_NUMBER = Range()
LARGEST_WHOLE = 2**31 - 1
"""Whole numbers end up in 32 bits."""


def check_ranges(module: Configurable) -> None:
    """Refuse numbers outside the range of their field, and NaN and infinity in all of them.

    Arrays are not looked at: they are traced, or come from numbers that were checked.
    """
    for name, domain in _ranges(type(module)).items():
        _check_number(getattr(module, name), domain, name)


def convert_whole_numbers(module: Configurable) -> None:
    """Turn the whole numbers of a record into ints: 1e5 is a float in Python. For ``__post_init__``."""
    for name in _whole_fields(type(module)):
        object.__setattr__(module, name, convert(getattr(module, name), int, 0, name))


@lru_cache(maxsize=256)
def _whole_fields(kind: type) -> tuple[str, ...]:
    return tuple(name for name, hint in get_type_hints(kind).items() if hint is int)


def _check_number(value: Any, domain: Range, name: str) -> None:
    if isinstance(value, tuple):
        for entry in value:
            _check_number(entry, domain, name)
    if not isinstance(value, Real) or isinstance(value, bool):
        return
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise SettingsError(f"{name} must be at most {LARGEST_WHOLE}, got {value}")
    if not (math.isfinite(value) and float(value) in domain):
        raise SettingsError(f"{name} must be {domain}, got {float(value):g}")


@lru_cache(maxsize=256)
def _ranges(kind: type) -> dict[str, Range]:
    """The range of every field; any finite number where the type says nothing."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _range_in(hints[field.name]) or ANY_NUMBER for field in dataclasses.fields(kind)}


def _range_in(hint: Any) -> Range | None:
    """The range that a type states, also as one of a union: ``Annotated[int, COUNT] | None``."""
    if get_origin(hint) is Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, Range)), None)
    return next((found for part in get_args(hint) if (found := _range_in(part)) is not None), None)


def describe(module: Configurable) -> dict[str, Any]:
    """Every setting as a flat, JSON-ready mapping: ``{"gamma": 0.9, "criterion.delta_0": 500.0, ...}``."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            flat |= {f"{field.name}.{key}": v for key, v in describe(value).items()}
        else:
            flat[field.name] = _plain(value)
    return flat


def override(module: C, changes: Mapping[str, Any]) -> C:
    """A copy with some settings changed, named in full (``criterion.delta_0``) or by the last part (``delta_0``)."""
    known = describe(module)
    for name, value in changes.items():
        path = full_name(name, known)
        module = _replace(module, path.split("."), value, path)
    return module


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """``["delta_0=100", "widths=128,128", "double=true"]`` as a mapping of Python values."""
    parsed: dict[str, Any] = {}
    for text in assignments:
        name, sign, raw = text.partition("=")
        if not sign or not name:
            raise SettingsError(f"{text!r} is not a setting: write name=value, for example delta_0=100")
        parsed[name.strip()] = _parse_value(raw.strip())
    return parsed


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint for an unknown name: the closest of the choices, or all of them."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"choose from: {', '.join(choices)}"


def reference(thing: Any) -> str:
    """The name of a function or class in files: ``module:name``, which `import_named` imports."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def import_named(text: str) -> Any:
    """The function or class behind ``module:name``."""
    module, _, name = text.partition(":")
    if not name.isidentifier():
        raise SettingsError(f"{text!r} cannot be imported: write module:name of something at the top of a module")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"{text!r} cannot be imported: {error}") from error


def import_optional(module: str, extra: str) -> Any:
    """A module of an optional package; an error that says how to install it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise SettingsError(
            f"{package} cannot be imported ({error}); {EXTRAS[extra].enables} need it: {pip_line(extra)}"
        ) from error


def full_name(name: str, known: Mapping[str, Any]) -> str:
    """The setting that a name stands for among the ``known`` ones (the keys of `describe`)."""
    if name in known:
        return name
    matches = [path for path in known if path.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SettingsError(f"setting {name!r} is ambiguous: say one of {', '.join(matches)}")
    if not known:
        raise SettingsError(f"there is no setting {name!r}: there are none to change")
    last_parts = {path.rsplit(".", 1)[-1] for path in known} | set(known)
    raise SettingsError(f"there is no setting {name!r}; {nearest(name, last_parts)}")


def _replace(module: Any, path: list[str], value: Any, full: str) -> Any:
    head, *rest = path
    if rest:
        return dataclasses.replace(module, **{head: _replace(getattr(module, head), rest, value, full)})
    hints = get_type_hints(type(module))
    return dataclasses.replace(module, **{head: convert(value, hints[head], getattr(module, head), full)})


def convert(value: Any, hint: Any, old: Any, name: str) -> Any:
    """Turn a value into what the field holds, or say what it should have been."""
    if isinstance(value, str) and value == _plain(old):
        return old  # by the name that `describe` gives it
    optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
    if value is None:
        if optional:
            return None
        raise SettingsError(f"{name} cannot be empty")
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise SettingsError(f"{name} cannot be {value!r}; {nearest(str(value), map(str, get_args(hint)))}")
        return value
    kinds = set(get_args(hint)) if optional else {hint}
    if any(get_origin(kind) is Callable for kind in kinds):
        found = import_named(value) if isinstance(value, str) else value
        if not callable(found):
            raise SettingsError(f"{name} must be a function, or the name of one as module:name; got {value!r}")
        return found
    if bool in kinds or isinstance(old, bool):
        if not isinstance(value, bool):
            raise SettingsError(f"{name} must be true or false, got {value!r}")
        return value
    if str in kinds:
        if not isinstance(value, str):
            raise SettingsError(f"{name} must be text, got {value!r}")
        return value
    if int in kinds or (isinstance(old, int) and float not in kinds):
        if not _is_whole(value):
            raise SettingsError(f"{name} must be a whole number, got {value!r}")
        return int(value)
    if isinstance(old, tuple):
        return _whole_numbers(value if isinstance(value, list | tuple) else [value], name)
    if isinstance(value, str | list | tuple | dict | bool):
        raise SettingsError(f"{name} must be a number, got {value!r}")
    return float(value) if getattr(value, "ndim", 0) == 0 else value


def _whole_numbers(values: Iterable[Any], name: str) -> tuple[Any, ...]:
    """Whole numbers, also in groups: widths, and the layers of convolutions."""
    if not all(isinstance(value, list | tuple) or _is_whole(value) for value in values):
        raise SettingsError(f"{name} must be whole numbers, got {values!r}")
    return tuple(_whole_numbers(v, name) if isinstance(v, list | tuple) else int(v) for v in values)


def _is_whole(value: Any) -> bool:
    """Whether a number has no fraction, however it is written."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and float(value).is_integer()


def whole_number(text: str) -> int:
    """A whole number as people type it: ``100000``, ``100_000``, ``1e5``."""
    number = parse_number(text)
    if number is None or not _is_whole(number):
        raise SettingsError(f"{text!r} is not a whole number: write 100000, 100_000 or 1e5")
    return int(number)


def parse_number(text: str) -> int | float | None:
    """The number that a text is, as Python writes numbers; None where it is none."""
    if re.fullmatch(rf"[+-]?{_DIGITS}", text) and len(text) < 300:
        return int(text)
    if re.fullmatch(rf"[+-]?({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})([eE][+-]?\d+)?", text):
        return float(text)
    return None


_DIGITS = r"\d+(?:_\d+)*"


def _parse_value(raw: str) -> Any:
    if (number := parse_number(raw)) is not None:
        return number
    if "," in raw and not raw.startswith("["):
        numbers = [parse_number(part.strip()) for part in raw.split(",")]
        if None not in numbers:
            return numbers
        text = f"[{raw}]"
    else:
        text = {"true": "true", "false": "false", "none": "null"}.get(raw.lower(), raw)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return raw


def _plain(value: Any) -> Any:
    """A value for JSON; what is neither a number nor text goes by the name of its class, or its own."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "dtype"):
        return value.tolist()
    return value if isinstance(value, str | int | float | dict | None) else reference(value)
