"""Every plausible mistake gets one clear message and a non-zero exit, and the page of messages is as the code says."""

from __future__ import annotations

import re

import pytest
from mistakes import MISTAKES, PAGE, Mistake, commit, comparable, workplace

EXPECTED_ERRORS = (
    "ValueError",
    "SettingsError",
    "UnsupportedSpaceError",
    "CheckpointError",
    "EnvironmentFaultError",
    "DivergedError",
)


@pytest.fixture(scope="module", autouse=True)
def here():
    with workplace():
        yield


def rows() -> dict[str, tuple[str, str]]:
    found = re.findall(r"^\| `(.+)` \| (\w+) \| (.*) \|$", PAGE.read_text(), re.M)
    return {what: (code, message) for what, code, message in found}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.what)
def test_a_mistake_gets_one_clear_message(mistake: Mistake):
    code, message = commit(mistake)
    assert "Traceback" not in message and re.search(mistake.said, message), (code, message)
    assert code in EXPECTED_ERRORS if mistake.python else code == mistake.code, (code, message)
    listed = rows().get(mistake.what)
    assert listed is not None, "the page does not list it: python -m tests.mistakes"
    here = comparable(message.replace("|", "\\|").replace("<", "&lt;"))
    assert listed[0] == str(code) and here.startswith(comparable(listed[1].removesuffix("..."))[:200])


def test_there_are_enough_of_them():
    assert len({mistake.what for mistake in MISTAKES}) == len(MISTAKES) >= 40 and len(rows()) == len(MISTAKES)
