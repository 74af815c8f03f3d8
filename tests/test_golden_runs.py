"""A guard against numbers that change unnoticed: five updates of every kind of agent, against committed values."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden import CASES, PATH, UPDATES, summary

GOLDEN = json.loads(PATH.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("agent, env", CASES)
def test_five_updates_give_the_committed_parameters(agent: str, env: str):
    ours, theirs = summary(agent, env), GOLDEN[f"{agent} on {env}"]
    assert ours["updates"] == theirs["updates"] == UPDATES
    np.testing.assert_allclose(ours["parameters"], theirs["parameters"], rtol=1e-4, atol=1e-6)


def test_every_case_has_committed_values():
    assert list(GOLDEN) == [f"{agent} on {env}" for agent, env in CASES]
