"""sbx's DQN (Stable-Baselines in JAX) on CartPole. Run by the interpreter of an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import torch
from sbx import DQN

from benchmarks.peer_protocol import require_learning, serve
from benchmarks.stepping import by_sb3

PACKAGES = ("sbx-rl", "stable-baselines3", "flax", "optax", "jax", "torch")


def build(env: str, steps: int, memory: int, column: dict[str, Any]) -> tuple[Callable[[], int], dict]:
    """A turn is ``steps`` steps, with as many rounds of learning as fall into them."""
    interval, updates = column["update_interval"], column["updates_per_round"]
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=column["learning_rate"],
        buffer_size=memory,
        learning_starts=column["start_steps"],
        batch_size=column["batch_size"],
        gamma=column["gamma"],
        train_freq=interval,
        gradient_steps=updates,
        target_update_interval=column["target_update_interval"],
        exploration_initial_eps=column["epsilon"],
        exploration_final_eps=column["epsilon"],
        policy_kwargs={"net_arch": list(column["widths"])},
        seed=0,
    )

    def run() -> int:
        before = int(model.policy.qf_state.step)
        done = by_sb3(model, steps)
        if int(model.policy.qf_state.step) - before != done // interval * updates:
            raise RuntimeError("there were not as many updates as there should be")
        return done

    by_sb3(model, column["start_steps"])  # ends where a round of learning does
    require_learning(run, lambda: jax.device_get(jax.tree.leaves(model.policy.qf_state.params)))  # compiled now
    run()
    return run, {"versions": {name: version(name) for name in PACKAGES}, "threads": torch.get_num_threads()}


if __name__ == "__main__":
    serve(build)
