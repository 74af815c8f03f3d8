"""Short runs whose numbers are committed: `python tests/golden.py` writes golden.json anew.

Renew it only in a commit that is meant to change numbers, and say there why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tremble

PATH = Path(__file__).with_name("golden.json")
AGENTS = (
    "dqn",
    "c51",
    "qrdqn",
    "iqn",
    "fqf",
    "mmd",
    "rainbow",
    "quota",
    "bootstrapped_dqn",
    "ndqfn",
    "dltv",
    "p_dltv",
    "pqr",
)
ENVS = ("nchain", "CartPole-v1", "minatar/breakout")
START, UPDATES = 40, 5
CASES = [(agent, env) for env in ENVS for agent in AGENTS]


def summary(agent: str, env: str) -> dict[str, Any]:
    """Mean, standard deviation and first number of every parameter array after five updates."""
    # Small batches and supports, so that a run takes seconds; every part of the agent is still used.
    run = tremble.train(agent, env, steps=START + UPDATES, start_steps=START, batch_size=16, memory_size=200)
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(run.agent.params)]
    return {
        "parameters": [[float(x.mean()), float(x.std()), float(x.flat[0])] for x in leaves],
        "updates": int(run.rows[-1]["updates"]),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps({f"{a} on {e}": summary(a, e) for a, e in CASES}, indent=1) + "\n")
