"""What settings mean: the docstring below each field, and the values that its type permits."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tremble.settings import Configurable, Range


@dataclass(frozen=True)
class SettingHelp:
    """A setting in words."""

    meaning: str
    """The docstring of its field; empty where somebody's own class has none."""
    allowed: str
    """Range or choices."""


def settings_help(module: Configurable) -> dict[str, SettingHelp]:
    """For every setting that `settings.describe` shows, and every part with settings of its own, by its full name."""
    found: dict[str, SettingHelp] = {}
    meanings, hints = _meanings(type(module)), get_type_hints(type(module), include_extras=True)
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found[field.name] = SettingHelp(meanings.get(field.name, ""), "")
            found |= {f"{field.name}.{name}": help for name, help in settings_help(value).items()}
        else:
            found[field.name] = SettingHelp(meanings.get(field.name, ""), ", ".join(_allowed(hints[field.name])))
    return found


@cache
def _meanings(kind: type) -> dict[str, str]:
    """The string below each field, as one line; those of base classes where a class does not say more."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # built in, or made in an interactive session
            continue
        if isinstance(parsed, ast.ClassDef):
            found |= _below_fields(parsed)
    return found


def _below_fields(parsed: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(parsed.body, parsed.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value) if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found


def _allowed(hint: Any) -> Iterator[str]:
    """Phrases that describe the values of a type."""
    kinds = list(_parts(hint))
    limits = [part for part in kinds if isinstance(part, Range)]
    if bool in kinds:
        yield "true or false"
    elif any(get_origin(part) is tuple for part in kinds):
        yield "whole numbers"
    elif int in kinds and float not in kinds:
        yield "a whole number"
    elif float in kinds:
        yield "a number"
    yield from map(str, limits)
    for part in kinds:
        if get_origin(part) is Literal:
            yield "one of " + ", ".join(map(str, get_args(part)))
        elif get_origin(part) is Callable:
            yield "a function, as module:name"
    if type(None) in kinds:
        yield "or none"


def _parts(hint: Any) -> Iterator[Any]:
    """A type, what it is annotated with, and the members of a union, but not what is inside a tuple or function."""
    if get_origin(hint) is Annotated:
        yield from _parts(hint.__origin__)
        yield from hint.__metadata__
    elif get_origin(hint) in (tuple, Literal, Callable) or not get_args(hint):
        yield hint
    else:
        for part in get_args(hint):
            yield from _parts(part)
