"""The gradient of the quantile Huber loss: tremble's closed form beside automatic differentiation.

All three compute d/d predicted of the batch mean of sum_i (1/N) sum_j |tau_i - 1{u_ij < 0}| H_1(u_ij), from the same
numbers, and the gradients must agree before anything is reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.compare import Part, compare, median_cores, raw
from benchmarks.progress import counting, waiting
from benchmarks.workers import Contender, Team, interleave

LOOP = " in a loop"
"""Marks shapes at which a call makes many steps of gradient descent on the prediction: what a gradient costs inside a
compiled training loop, where nothing is dispatched from Python in between (PyTorch has no such loop, and pays)."""
LOOP_STEPS = 32
SHAPES = ("32 x 200", "64 x 200", "128 x 170", "256 x 64", "32 x 51", f"64 x 200{LOOP}", f"128 x 170{LOOP}")
"""Batch x quantiles: Atari, N-Chain and LunarLander in the paper, a wide batch, and C51's number of atoms."""
PEERS = ("rlax", "sb3-contrib")
TOLERANCE = 1e-5
"""Largest difference of two gradients, relative to the largest entry: what float32 sums may differ by."""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int = 20
    turn_seconds: float = 0.08
    shapes: tuple[str, ...] = SHAPES


QUICK = Effort(rounds=3, turn_seconds=0.02, shapes=("64 x 200", "32 x 51"))


def measure(console: Console, quick: bool) -> Part:
    """Time the three libraries with all cores and with one thread."""
    effort = QUICK if quick else Effort()
    teams: dict[tuple[str, str], Team] = {}
    try:
        for threads in ("all cores", "one thread"):
            for library in ("tremble", *PEERS):
                with waiting(console, f"starting {library}, {threads}"):
                    options = {"library": library, "shapes": effort.shapes, "turn_seconds": effort.turn_seconds}
                    teams[library, threads] = Team(contender, [options], one_thread=threads == "one thread")
        difference = _disagreement([team.facts[0]["gradients"] for team in teams.values()])
        turns = {
            (library, threads, shape): partial(team.turn, shape)
            for shape in effort.shapes
            for (library, threads), team in teams.items()
        }
        with counting(console, "gradients", effort.rounds) as tick:
            taken = interleave(turns, effort.rounds, tick)
        default_threads = teams["sb3-contrib", "all cores"].facts[0]["threads"]
    finally:
        for team in teams.values():
            team.close()

    comparisons = [
        compare(
            f"{shape}, {threads}",
            "ms",
            ("tremble", taken["tremble", threads, shape]),
            (peer, taken[peer, threads, shape]),
        )
        for threads in ("all cores", "one thread")
        for shape in effort.shapes
        for peer in PEERS
    ]
    busy = ", ".join(
        f"{library} {median_cores([t for shape in effort.shapes for t in taken[library, 'all cores', shape]]):.1f}"
        for library in ("tremble", *PEERS)
    )
    notes = [
        "The gradient of the batch-mean loss, batch x quantiles, kappa = 1; compiled and warm.",
        f'"In a loop": {LOOP_STEPS} steps of gradient descent on the prediction in one call, per step. This is what a '
        "gradient costs inside compiled training; single calls pay about 0.1 ms of dispatch on top, in tremble and "
        "rlax alike.",
        f"The gradients of the three agree: they differ by at most {difference:.1e} of the largest entry.",
        f'"All cores" is what a user gets without settings (PyTorch: {default_threads} threads). Cores busy: {busy}.',
    ]
    title = "Quantile Huber gradient"
    return Part("loss", title, comparisons, notes, {" | ".join(key): raw(value) for key, value in taken.items()})


def _disagreement(found: list[dict[str, Any]]) -> float:
    """Largest relative difference between the first contender's gradients and the others'."""
    worst = 0.0
    for shape, reference in found[0].items():
        for other in found[1:]:
            difference = np.abs(other[shape] - reference).max() / np.abs(reference).max()
            worst = max(worst, float(difference))
    if not worst <= TOLERANCE:
        raise RuntimeError(f"the gradients differ by {worst:.1e} of the largest entry: nothing to compare")
    return worst


# ------------------------------------------------------------------------------------------ in a contender's process


def contender(library: str, shapes: tuple[str, ...], turn_seconds: float) -> Contender:
    """One library, ready to compute the gradient at every shape for about ``turn_seconds`` a turn."""
    make, facts = {"tremble": _tremble, "rlax": _rlax, "sb3-contrib": _sb3}[library]()
    loop = LOOP_STEPS if library != "sb3-contrib" else 2  # nothing to amortise there, and a step takes long enough
    calls = {shape: make(*inputs(shape), loop if LOOP in shape else 0) for shape in shapes}
    facts["gradients"] = {shape: np.asarray(call()) for shape, call in calls.items() if LOOP not in shape}
    repeats = {shape: _repeats(call, turn_seconds) for shape, call in calls.items()}

    def run(shape: str) -> int:
        call = calls[shape]
        for _ in range(repeats[shape]):
            call()
        return repeats[shape] * (loop if LOOP in shape else 1)

    return Contender(run, facts)


def inputs(shape: str) -> tuple[Any, Any, Any]:
    """Predicted and target atoms ``[batch, N]`` and levels ``[N]``; errors on both sides of kappa = 1."""
    batch, n = (int(number) for number in shape.removesuffix(LOOP).split("x"))
    rng = np.random.default_rng([batch, n])
    predicted = rng.normal(0.0, 1.0, (batch, n)).astype(np.float32)
    target = rng.normal(0.5, 1.5, (batch, n)).astype(np.float32)
    levels = ((np.arange(n) + 0.5) / n).astype(np.float32)
    return predicted, target, levels


def _repeats(call: Callable[[], Any], seconds: float) -> int:
    """How many calls fill a turn, once warm."""
    for _ in range(3):
        call()
    start = time.perf_counter()
    for _ in range(5):
        call()
    return max(math.ceil(seconds / ((time.perf_counter() - start) / 5)), 1)


def _tremble() -> tuple[Callable[..., Callable[[], Any]], dict[str, Any]]:
    from tremble.losses import quantile_huber

    return _in_jax(lambda predicted, target, levels: quantile_huber(predicted, target, levels, kappa=1.0)), {}


def _rlax() -> tuple[Callable[..., Callable[[], Any]], dict[str, Any]]:
    import rlax

    return _in_jax(
        lambda predicted, target, levels: rlax.quantile_regression_loss(predicted, levels, target, huber_param=1.0)
    ), {}


def _in_jax(loss: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """The gradient of a single transition's loss, averaged over a batch, compiled."""
    import jax

    def make(predicted: Any, target: Any, levels: Any, steps: int) -> Callable[[], Any]:
        predicted, target, levels = (jax.numpy.asarray(x) for x in (predicted, target, levels))
        batched = jax.vmap(loss, in_axes=(0, 0, None))
        gradient = jax.grad(lambda p, y, tau: batched(p, y, tau).mean())

        def descend(p: Any, y: Any, tau: Any) -> Any:
            return jax.lax.fori_loop(0, steps, lambda _, p: p - gradient(p, y, tau), p)

        compiled = jax.jit(descend if steps else gradient)
        return lambda: compiled(predicted, target, levels).block_until_ready()

    return make


def _sb3() -> tuple[Callable[..., Callable[[], Any]], dict[str, Any]]:
    import torch
    from sb3_contrib.common.utils import quantile_huber_loss

    def make(predicted: Any, target: Any, levels: Any, steps: int) -> Callable[[], Any]:
        leaf = torch.from_numpy(predicted).requires_grad_()
        fixed = torch.from_numpy(target)

        def gradient(leaf: Any) -> Any:
            return torch.autograd.grad(quantile_huber_loss(leaf, fixed), leaf)[0]  # it makes the same levels by itself

        def descend() -> Any:
            p = leaf
            for _ in range(steps):
                p = (p - gradient(p)).detach().requires_grad_()
            return p.detach()

        return descend if steps else partial(gradient, leaf)

    return make, {"threads": torch.get_num_threads()}
