"""Published numbers as printed, with their provenance; the files are part of the package (`report/data`)."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

import pandas as pd

from tremble.settings import SettingsError, nearest

_DATA = files("tremble.report") / "data"


@cache
def all_provenance() -> dict[str, dict[str, str]]:
    """For each file: title, source, units, testing condition and notes."""
    entries: dict[str, dict[str, str]] = json.loads((_DATA / "provenance.json").read_text(encoding="utf-8"))
    return entries


def load_reference(name: str) -> pd.DataFrame:
    """A file of published numbers as printed: one row for each game, agent or claim."""
    if name not in all_provenance():
        raise SettingsError(f"there is no reference {name!r}; {nearest(name, all_provenance())}")
    with (_DATA / f"{name}.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file)
    keys = [key for key in ("game", "agent", "protocol") if key in table.columns]
    return table.set_index(keys) if keys else table


@cache
def human_random() -> pd.DataFrame:
    """``random`` and ``human`` scores of 57 games; do not change it."""
    return load_reference("atari57_human_random")


ATARI_57: tuple[str, ...] = tuple(human_random().index)
"""Games with human scores, as the emulator spells them."""
_BY_LETTERS = {game.lower(): game for game in ATARI_57}


def game_name(text: str) -> str:
    """The emulator's spelling of a game: ``bank_heist``, ``bankheist``, ``ALE/BankHeist-v5`` are all ``BankHeist``."""
    plain = re.sub(r"(NoFrameskip|Deterministic)?(-v\d+)?$", "", text.rsplit("/", 1)[-1])
    letters = re.sub(r"[^a-z]", "", plain.lower())
    if letters not in _BY_LETTERS:
        raise SettingsError(f"there is no human score for the game {text!r}; {nearest(plain, ATARI_57)}")
    return _BY_LETTERS[letters]
