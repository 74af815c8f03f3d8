"""Is one update as fast as in an older revision, and how far is it from its arithmetic? The environment plays no part.

    python -m benchmarks.updates REVISION                   every case, REVISION against the working tree
    python -m benchmarks.updates REVISION --only iqn-64     one case: agent, batch size, and what else it is made with

What is timed is `tremble.learn.learn`, with the step of the target parameters before it that the column of CartPole
asks for: many in one compiled call, so that dispatching it does not count, and on random batches drawn beforehand.
Pairs of processes and the interval of their ratio are those of `benchmarks.revisions`.

"Times its arithmetic" is the time in the working tree over what the operations of the update would take at the rate of
a large product of matrices on the same thread. They are counted by `benchmarks.arithmetic`: products of matrices, and
one for each number that anything else calculates, an exponential as much as an addition. Where a compiled program has
no inner loops, XLA's own count differs from this by a few per cent. A program that asks for less has less to be
compared with, so which of two is faster is said by the ratio of their times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.arithmetic import count
from benchmarks.gym_training import settings
from benchmarks.machine import matrix_speed
from benchmarks.revisions import Pairs

OBSERVATION, ACTIONS = (4,), 2
"""CartPole's."""
BATCHES = 16
CALL_SECONDS, CALLS = 0.2, 15


@dataclass(frozen=True)
class Case:
    """An agent, its batch size, and what differs from its defaults."""

    agent: str
    batch: int
    widths: tuple[int, ...] = (64, 64)
    options: dict[str, Any] = field(default_factory=dict)


PARTICLES = {"n_particles": 200}
CASES = {
    f"{agent}-{batch}": Case(agent, batch, options=PARTICLES if agent == "mmd" else {})
    for agent in ("iqn", "fqf", "ndqfn", "mmd", "dqn")
    for batch in (32, 64)
} | {"dqn-64-256x256": Case("dqn", 64, (256, 256))}


def measure(case: Case) -> dict[str, float]:
    """Updates per second, the operations of one, and those per second of a large product of matrices."""
    import jax

    agent = _agent(case)
    state_key, batch_key, learn_key = jax.random.split(jax.random.key(0), 3)
    state = agent.init(state_key, OBSERVATION, ACTIONS)
    inputs = _batches(agent, batch_key, case.batch), jax.random.split(learn_key, BATCHES)
    update = _update(agent)

    @jax.jit
    def updates(state: Any, inputs: Any, n: int) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, state: update(state, _pick(inputs, i % BATCHES)), state)

    def seconds(n: int) -> float:
        nonlocal state
        begin = time.perf_counter()
        state = jax.block_until_ready(updates(state, inputs, n))
        return time.perf_counter() - begin

    operations = count(update, state, _pick(inputs, 0))
    seconds(10)  # compiled now
    n = max(1, round(10 * CALL_SECONDS / seconds(10)))
    speed = 1 / median(seconds(n) / n for _ in range(CALLS))
    counted = {"products": operations.products, "others": operations.others}
    return {"speed": speed, "operations_per_second": matrix_speed(), **counted}


def _pick(inputs: Any, i: Any) -> Any:
    import jax

    return jax.tree.map(lambda x: x[i], inputs)


def _agent(case: Case) -> Any:
    """The column of CartPole, plain: without layer normalisation or double learning; the target follows by 2 %."""
    from tremble.hyperparameters import register_hyperparameters
    from tremble.presets import make

    further = {"target_tau": 0.02} | case.options
    column = settings("control", batch_size=case.batch, widths=case.widths, settings=further)
    register_hyperparameters("benchmark", column)
    return make(case.agent, "benchmark")


def _batches(agent: Any, key: Any, size: int) -> Any:
    """Random transitions, with a leading axis of batches."""
    import jax
    import jax.numpy as jnp

    from tremble.core import Transition

    before, after, actions, rewards = jax.random.split(key, 4)
    shape = (BATCHES, size)
    return Transition(
        jax.random.normal(before, (*shape, *OBSERVATION)),
        jax.random.randint(actions, shape, 0, ACTIONS),
        jax.random.normal(rewards, shape),
        jnp.full(shape, agent.gamma),
        jax.random.normal(after, (*shape, *OBSERVATION)),
        jnp.ones(shape),
    )


def _update(agent: Any) -> Callable[[Any, Any], Any]:
    """One update. Parameters of both networks change in each, so nothing in a loop of them can be done before it."""
    from tremble.learn import learn, update_target

    clock = agent.clock(10_000, 100)

    def update(state: Any, inputs: Any) -> Any:
        batch, key = inputs
        return learn(agent, update_target(agent, state), batch, agent.draw_learn(key), clock, key)[0]

    return update


def distance(found: dict[str, Any]) -> str:
    """The end of a line: milliseconds now, operations, and times its arithmetic, in the median over rounds."""
    now = [answer for _, answer in found["answers"]]
    products, others = now[0]["products"], now[0]["others"]
    milliseconds = 1e3 * median(1 / answer["speed"] for answer in now)
    times = median(answer["operations_per_second"] / (answer["speed"] * (products + others)) for answer in now)
    operations = f"{products / 1e6:.1f} + {others / 1e6:.1f} million operations"
    return f"; now {milliseconds:.3f} ms for {operations}, {times:.1f} times its arithmetic"


if __name__ == "__main__":
    Pairs("benchmarks.updates", CASES, measure, "updates/s").main(__doc__, distance)
