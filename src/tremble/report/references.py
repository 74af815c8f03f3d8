"""Published numbers as printed, with their provenance; the files are part of the package (`report/data`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from tremble.settings import SettingsError, nearest

_DATA = files("tremble.report") / "data"


@dataclass(frozen=True)
class Provenance:
    """Source of a file of numbers, and the conditions they were measured under."""

    title: str
    source: str
    units: str
    condition: str
    notes: str


@cache
def _all_provenance() -> dict[str, Provenance]:
    entries: dict[str, Any] = json.loads((_DATA / "provenance.json").read_text(encoding="utf-8"))
    return {name: Provenance(**entry) for name, entry in entries.items()}


def provenance(name: str) -> Provenance:
    """Source, units and testing condition of a file."""
    if name not in _all_provenance():
        raise SettingsError(f"there is no reference {name!r}; {nearest(name, _all_provenance())}")
    return _all_provenance()[name]


def load_reference(name: str) -> pd.DataFrame:
    """A file of published numbers as printed: one row for each game, agent or claim."""
    provenance(name)
    with (_DATA / f"{name}.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file)
    return table if name == "printed_wins" else _indexed(table)


def _indexed(table: pd.DataFrame) -> pd.DataFrame:
    keys = [key for key in ("game", "agent", "protocol") if key in table.columns]
    return table.set_index(keys)


@cache
def human_random() -> pd.DataFrame:
    """``random`` and ``human`` scores of 57 games; do not change it."""
    return load_reference("atari57_human_random")


ATARI_57: tuple[str, ...] = tuple(human_random().index)
"""Games with human scores, as the emulator spells them."""
ATARI_55: tuple[str, ...] = tuple(game for game in ATARI_57 if game not in ("Defender", "Surround"))
"""The games of the paper."""

_BY_LETTERS = {game.lower(): game for game in ATARI_57}


def game_name(text: str) -> str:
    """The emulator's spelling of a game: ``bank_heist``, ``bankheist``, ``ALE/BankHeist-v5`` are all ``BankHeist``."""
    plain = re.sub(r"(NoFrameskip|Deterministic)?(-v\d+)?$", "", text.rsplit("/", 1)[-1])
    letters = re.sub(r"[^a-z]", "", plain.lower())
    if letters not in _BY_LETTERS:
        raise SettingsError(f"there is no human score for the game {text!r}; {nearest(plain, ATARI_57)}")
    return _BY_LETTERS[letters]
