"""Illustrations: the scores of each criterion for two actions of equal mean and unequal variance.

Nothing is trained here; the library's criteria score two given distributions.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from tremble.core import Clock
from tremble.criteria import Criterion, Optimism, Perturbed
from tremble.dist import ReturnDist
from tremble.report import figures
from tremble.schedules import Schedule

N = 200
LEVELS = (np.arange(N) + 0.5) / N
DRAWS = 4000


def two_actions(gap: float = 0.0) -> ReturnDist:
    """A narrow and a wide action; the narrow one's mean is higher by ``gap``."""
    narrow, wide = stats.norm.ppf(LEVELS, gap, 0.5), stats.norm.ppf(LEVELS, 0.0, 2.0)
    return ReturnDist(jnp.asarray(np.stack([narrow, wide]), jnp.float32))


def choice_probability(criterion: Criterion, dist: ReturnDist, t: int, epsilon: float = 0.0) -> np.ndarray:
    """Probability of each action under a criterion at time t, ties shared, then mixed with uniform choice."""
    clock = Clock(t - 1, t - 1, 0, t - 1)
    keys = jax.random.split(jax.random.key(t), DRAWS)
    scores = jax.vmap(lambda key: criterion.score(dist, criterion.draw(key), clock))(keys)
    best = np.isclose(scores, scores.max(-1, keepdims=True), atol=1e-6)
    chosen = (best / best.sum(-1, keepdims=True)).mean(0)
    return np.asarray((1 - epsilon) * chosen + epsilon / dist.atoms.shape[0])


def why_randomise(out: Path) -> None:
    """Two actions of equal mean: optimism always takes the wide one, a randomised criterion takes either."""
    times = np.unique(np.geomspace(2, 20_000, 24).astype(int))
    methods: dict[str, tuple[str, Criterion, str]] = {
        "epsilon-greedy": ("ε-greedy on the mean", Optimism(0.0), "qrdqn"),
        "dltv": ("DLTV", Optimism(50.0, draw_law="one"), "dltv"),
        "p_dltv": ("p-DLTV", Optimism(50.0, draw_law="normal"), "p_dltv"),
        "pqr": ("PQR", Perturbed(500.0), "pqr"),
    }
    figure, (left, middle, right) = figures.new(1, 3, 14, 3.9)
    grid = np.linspace(-7, 7, 600)
    for mean, std, colour, name in ((0.0, 0.5, "left", "narrow"), (0.0, 2.0, "right", "wide")):
        curve = stats.norm.pdf(grid, mean, std)
        left.plot(grid, curve, color=figures.COLOURS[colour], linewidth=2, label=f"{name} action")
        left.fill_between(grid, curve, color=figures.COLOURS[colour], alpha=0.15, linewidth=0)
    left.set(title="Two actions, one mean", xlabel="return", yticks=[])
    left.legend()
    titles = {0.0: "Equal means: who takes the wide action?", 0.3: "The narrow action is better by 0.3"}
    for axis, (gap, title) in zip((middle, right), titles.items(), strict=True):
        for label, criterion, colour in methods.values():
            epsilon = 0.01 if colour == "qrdqn" else 0.0
            share = [choice_probability(criterion, two_actions(gap), int(t), epsilon)[1] for t in times]
            axis.plot(times, share, "o-", markersize=3.5, color=figures.COLOURS[colour], label=label)
        axis.axhline(0.5 if gap == 0 else 0.0, color="#111111", linewidth=0.8, linestyle="--")
        axis.set(title=title, xscale="log", xlabel="time step t", ylim=(-0.04, 1.04))
    middle.set_ylabel("probability of the wide action")
    middle.legend(fontsize=9, loc="center left", bbox_to_anchor=(0.0, 0.72))
    figures.save(figure, out / "why_randomise")


def how_pqr_scores(out: Path) -> None:
    """PQR's scores of three actions as the perturbation shrinks: within each action's range, then at the mean."""
    actions = (("wide", 0.0, 2.2, "#d1495b"), ("best", 0.5, 0.8, "#2a6f97"), ("inferior", -4.0, 0.8, "#9ca3af"))
    atoms = np.stack([stats.norm.ppf(LEVELS, mean, std) for _, mean, std, _ in actions])
    dist = ReturnDist(jnp.asarray(atoms, jnp.float32))
    figure, axes = figures.new(1, 4, 14, 3.6, sharey=True)
    grid = np.linspace(-8, 8, 700)
    clock = Clock(0, 0, 0, 0)
    keys = jax.random.split(jax.random.key(0), DRAWS)
    for axis, delta in zip(axes, (5.0, 1.0, 0.3, 0.02), strict=True):
        sized = Perturbed(delta, schedule=Schedule("const"))
        scores = np.asarray(jax.vmap(lambda k, c=sized: c.score(dist, c.draw(k), clock))(keys))
        share = np.bincount(scores.argmax(1), minlength=3) / DRAWS
        for place, (name, mean, std, colour) in enumerate(actions):
            axis.plot(grid, stats.norm.pdf(grid, mean, std), color=colour, linewidth=1, alpha=0.5)
            height, edges = np.histogram(scores[:, place], bins=np.linspace(-8, 8, 161))
            height = 0.5 * height / height.max()
            axis.fill_between(edges[:-1], height, step="post", color=colour, alpha=0.35, linewidth=0)
            words = {"color": colour, "transform": axis.transAxes, "fontweight": "bold", "ha": "right"}
            axis.text(0.99, 0.94 - 0.08 * place, f"{name}: {share[place]:.0%}", **words)
        axis.set(title=f"Δ = {delta:g}", xlabel="return (lines), score (filled)", yticks=[])
    figures.save(figure, out / "how_pqr_scores")


def illustrate(out: Path) -> None:
    """Both figures."""
    why_randomise(out)
    how_pqr_scores(out)
