"""rejax's DQN and IQN on gymnax's environments. Run by the interpreter of an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import rejax

from benchmarks.peer_protocol import require_learning, serve

PACKAGES = ("rejax", "gymnax", "flax", "distrax", "optax", "jax")
MATCHING: dict[str, dict[str, Any]] = {
    "dqn": {"ddqn": False, "agent_kwargs": {"activation": "relu"}},  # its layers are always 64 and 64
    "iqn": {
        "num_tau_samples": 64,
        "num_tau_prime_samples": 64,
        "agent_kwargs": {"activation": "relu", "hidden_layer_sizes": (64, 64)},
    },
}
"""What makes its agents like ours. IQN takes as many cosines as its last layer is wide, and 32 levels to choose."""


def build(agent: str, env: str, steps: int, memory: int, column: dict[str, Any]) -> tuple[Callable[[], int], dict]:
    """One environment and an update every step; a turn is one compiled call without evaluation."""
    algorithm = {"dqn": rejax.DQN, "iqn": rejax.IQN}[agent].create(
        env=env,
        num_envs=1,
        buffer_size=memory,
        fill_buffer=column["start_steps"],
        batch_size=column["batch_size"],
        learning_rate=column["learning_rate"],
        gamma=column["gamma"],
        target_update_freq=column["target_update_interval"],
        polyak=0.0,  # a copy
        eps_start=column["epsilon"],
        eps_end=column["epsilon"],
        **MATCHING[agent],
    )

    @partial(jax.jit, static_argnums=1, donate_argnums=0)
    def advance(state: Any, n: int) -> Any:
        return jax.lax.scan(lambda state, _: (algorithm.train_iteration(state), None), state, None, n)[0]

    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(0))
    state = advance(state, column["start_steps"] + 1)  # it learns once there are more than so many

    def run() -> int:
        nonlocal state
        before = int(state.q_ts.step)
        state = jax.block_until_ready(advance(state, steps))
        if int(state.q_ts.step) != before + steps:
            raise RuntimeError("not every step made an update")
        return steps

    require_learning(run, lambda: jax.device_get(jax.tree.leaves(state.q_ts.params)))  # compiled now
    run()
    return run, {"versions": {name: version(name) for name in PACKAGES}}


if __name__ == "__main__":
    serve(build)
