"""Stable-Baselines3's own tools take a tremble agent as it is: ``.venv-bench/bin/python -m benchmarks.interop``.

Trains a small agent, loads it from its files, and lets `evaluate_policy` judge it, on a plain environment and on a
vector of them; then compares with tremble's own evaluation.
"""

from __future__ import annotations

import tempfile

import gymnasium
import numpy as np


def main() -> None:
    """Run the check; an exception or a wide gap is a failure."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    import tremble

    with tempfile.TemporaryDirectory() as directory:
        tremble.train("pqr", "CartPole-v1", steps=6000, out=directory, record_every=2000)
        agent = tremble.load(directory)
    episodes = 20
    single, _ = evaluate_policy(agent, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=episodes)
    vector, _ = evaluate_policy(agent, make_vec_env("CartPole-v1", 4, seed=1), n_eval_episodes=episodes)
    noisy, _ = evaluate_policy(agent, make_vec_env("CartPole-v1", 4, seed=1), episodes, deterministic=False)
    ours = tremble.evaluate(agent, lambda: gymnasium.make("CartPole-v1"), episodes=episodes).mean
    print(
        f"evaluate_policy: one environment {single:.1f}, four {vector:.1f}, as in training {noisy:.1f}; ours {ours:.1f}"
    )
    # The episodes differ; twenty of them say the same within a wide margin.
    assert np.allclose([single, vector], ours, rtol=0.5), "evaluations disagree"


if __name__ == "__main__":
    main()
