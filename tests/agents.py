"""Agents from flat fields, as the tests give them."""

from __future__ import annotations

import dataclasses
from typing import Any

from tremble.agent import Agent, LearningSchedule


def flat_agent(**fields: Any) -> Agent:
    """An `Agent` whose learning schedule is given field by field."""
    names = {field.name for field in dataclasses.fields(LearningSchedule)}
    learning = LearningSchedule(**{name: value for name, value in fields.items() if name in names})
    return Agent(learning=learning, **{name: value for name, value in fields.items() if name not in names})
