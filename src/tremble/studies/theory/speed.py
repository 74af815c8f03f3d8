"""Run time of exact dynamic programming: many MDPs at once, and scaling with states, actions and atoms."""

from __future__ import annotations

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from tremble.report import figures, tables
from tremble.studies.kit import Options
from tremble.theory import FiniteMDP, Grid, iterate, random_draw

USUAL = {"states": 20, "actions": 4, "atoms": 51}
GROWTH = {"states": (5, 10, 20, 40), "actions": (2, 4, 8, 16), "atoms": (25, 51, 101, 201)}


def seconds(n_mdps: int, iterations: int, states: int, actions: int, atoms: int) -> tuple[float, float]:
    """Wall and processor time of the iterations alone, without compilation and without making the MDPs."""
    keys = jax.random.split(jax.random.key(0), n_mdps)
    generator = np.random.default_rng(0)
    law = generator.dirichlet(np.full(3 * states, 0.3), (n_mdps, states, actions))
    law = np.moveaxis(law.reshape(n_mdps, states, actions, 3, states), 3, 1)
    rewards = generator.uniform(-1, 1, (n_mdps, 3))
    arrays = (law, rewards, np.zeros((n_mdps, states), bool), np.full(n_mdps, 0.9))
    mdps = FiniteMDP(*(jnp.asarray(array, bool if array.dtype == bool else jnp.float32) for array in arrays))
    sizes = jnp.arange(1.0, iterations + 1) ** -1.001
    axes = FiniteMDP(0, 0, 0, 0, None)  # type: ignore[arg-type]  # all start in state 0
    draw, unknown = random_draw(20), jnp.zeros((states, actions))  # Q* is not timed
    run = jax.jit(
        jax.vmap(lambda mdp, key: iterate(mdp, Grid.of(mdp, atoms), draw, sizes, key, unknown).errors[-1], (axes, 0))
    )
    compiled = run.lower(mdps, keys).compile()
    wall, processor = time.perf_counter(), time.process_time()
    jax.block_until_ready(compiled(mdps, keys))
    return time.perf_counter() - wall, time.process_time() - processor


def measure(options: Options) -> tuple[list[list[float]], tuple[int, float, float]]:
    """Rows (states, actions, atoms, wall, processor time per MDP and iteration), and the large case."""
    n_mdps, iterations = (8, 10) if options.quick else (64, 20)
    shapes = [USUAL | {axis: size} for axis, sizes in GROWTH.items() for size in sizes[:: 3 if options.quick else 1]]
    rows = [[*s.values(), *(x / n_mdps / iterations for x in seconds(n_mdps, iterations, **s))] for s in shapes]
    many = 100 if options.quick else 1000
    return rows, (many, *seconds(many, 100, **USUAL))


def draw(rows: list[list[float]], options: Options) -> None:
    """Processor time against each size, the others fixed."""
    figure, axes = figures.new(1, 3, 11, 3.6, sharey=True)
    usual = list(USUAL.values())
    for place, (axis, name) in enumerate(zip(axes, GROWTH, strict=True)):
        others = [i for i in range(3) if i != place]
        # The usual size may have been measured once for each axis.
        line = sorted({row[place]: 1e6 * row[4] for row in rows if all(row[i] == usual[i] for i in others)}.items())
        values, times = zip(*line, strict=True)
        axis.plot(values, times, "o-", color="#2a6f97", label="measured")
        middle = len(line) // 2
        proportional = [times[middle] * value / values[middle] for value in values]
        axis.plot(values, proportional, ":", color="#6b7280", label="in proportion")
        fixed = ", ".join(f"{usual[i]} {list(USUAL)[i]}" for i in others)
        axis.set(xscale="log", yscale="log", xlabel=name, title=fixed)
        axis.set_xticks(values, [f"{v:g}" for v in values])
        axis.minorticks_off()
    axes[0].set(ylabel="µs of processor time\nper MDP and iteration")
    axes[0].legend(fontsize=9)
    figures.save(figure, options.out / "scaling")


def write(rows: list[list[float]], large: tuple[int, float, float], options: Options) -> str:
    """Write data and figure; returns a sentence for the report."""
    header = ["states", "actions", "atoms", "wall_seconds", "processor_seconds"]
    tables.write_csv(options.out / "scaling.csv", header, [[*r[:3], f"{r[3]:.3e}", f"{r[4]:.3e}"] for r in rows])
    draw(rows, options)
    n, wall, processor = large
    return (
        f"{n:,} random MDPs of 20 states and 4 actions, 51 atoms, 100 iterations with measured gaps: **{wall:.1f} s** on the "
        f"clock, {processor:.1f} s of processor time ({os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, "
        "this process included), without compilation."
    )
