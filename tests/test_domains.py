"""Every numeric setting of every agent has a range: a value is refused in one line, or the agent trains with it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tremble
from tremble.criteria import Perturbed
from tremble.settings import SettingsError, describe, parse_assignments

WORDS = ("0", "-1", "NaN", "nan", "inf", "-inf", "1e400", "a", "[1,2]", "1.5", "2")
"""What somebody could type after ``--set name=``."""
SMALL = {"steps": 50, "n_envs": 1}


def numeric_settings(agent: Any) -> list[str]:
    """Settings whose value is a number, or a list of numbers."""
    values = describe(agent)
    return [n for n, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)] + [
        n for n, v in values.items() if isinstance(v, list)
    ]


def small(name: str, **changes: Any) -> Any:
    """A preset that trains in a moment."""
    agent = tremble.make(name, "control", **changes)
    known = describe(agent)
    sizes = {"learning.batch_size": 4, "learning.start_steps": 20, "memory_size": 100, "network.widths": [8]}
    given = {"representation.n_quantiles": 4, "representation.n_atoms": 5, "representation.n_heads": 2} | sizes
    return {name: value for name, value in given.items() if name in known and name not in changes}


QUICK = ("pqr", "rainbow", "quota")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in tremble.list_agents()]
)
@pytest.mark.slow
def test_nonsense_is_refused_in_one_line(name):
    refused = 0
    for setting in numeric_settings(tremble.make(name, "control")):
        for word in WORDS:
            try:
                tremble.make(name, "control", **parse_assignments([f"{setting}={word}"]))
            except SettingsError as error:
                refused += 1
                assert setting.rsplit(".", 1)[-1] in str(error) and "\n" not in str(error), (setting, word, error)
            else:
                assert word in ("0", "-1", "[1,2]", "1.5", "2"), f"{setting}={word} was accepted"
    assert refused > 50


@pytest.mark.parametrize("word", ["NaN", "inf", "1e400", "a", "[1,2]", "1.5"])
def test_from_python_files_and_the_command_line_the_message_is_the_same(word):
    value = parse_assignments([f"gamma={word}"])["gamma"]
    with pytest.raises(SettingsError) as first:
        tremble.make("pqr", "control", gamma=value)
    with pytest.raises(SettingsError) as second:
        tremble.train("pqr", "nchain", steps=10, gamma=value)
    assert str(first.value) == str(second.value) and "gamma" in str(first.value)


def test_arrays_of_traced_values_stay_possible():
    one = tremble.make("pqr", "control")
    many = jax.vmap(lambda delta_0: dataclasses.replace(one, criterion=Perturbed(delta_0=delta_0)))(jnp.arange(2.0))
    assert many.criterion.delta_0.shape == (2,)


@pytest.mark.long
@pytest.mark.parametrize("name", tremble.list_agents())
def test_what_is_accepted_trains(name, tmp_path):
    """Fifty steps with every accepted value, one setting at a time."""
    environment = "nchain"
    for setting in numeric_settings(tremble.make(name, "control")):
        for word in WORDS:
            changes = parse_assignments([f"{setting}={word}"])
            try:
                tremble.make(name, "control", **changes)
            except SettingsError:
                continue
            try:
                run = tremble.train(name, environment, steps=50, hyperparameters="control", **small(name, **changes))
            except SettingsError as error:  # a value that needs another setting too
                assert "\n" not in str(error), (setting, word, error)
                continue
            json.dumps(run.rows, allow_nan=True)
            assert run.agent.counts.transitions == 50, (setting, word)
        jax.clear_caches()
