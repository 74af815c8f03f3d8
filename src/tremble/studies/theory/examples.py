"""Three counter-examples: constant sizes, ties, and unbounded returns."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from tremble.report import figures
from tremble.studies.kit import Options
from tremble.theory import Grid, iterate, random_draw, top_draw
from tremble.theory.appendix import uniform_gap
from tremble.theory.atoms import atom_step, merged, zero
from tremble.theory.counterexamples import concentrated, gamble, lasting_errors, limit_bound, tie
from tremble.wasserstein import wasserstein

BINS, ITERATIONS = 20, 100
DRAWS = {"optimistic": top_draw(BINS), "random": random_draw(BINS)}


def constant_sizes() -> dict[str, np.ndarray]:
    """Errors on `gamble`, with ambiguity sets of constant and of decreasing size."""
    mdp = gamble()
    grid, optimal = Grid.of(mdp, 61), mdp.optimal_q(50)
    sizes = {"constant": jnp.ones(ITERATIONS), "t^-1.001": jnp.arange(1.0, ITERATIONS + 1) ** -1.001}
    found = {}
    for name, draw in DRAWS.items():
        run = jax.jit(lambda size, draw=draw: iterate(mdp, grid, draw, size, jax.random.key(0), optimal).errors)
        for label, size in sizes.items():
            found[f"{name}, {label}"] = np.asarray(run(size))
    return found


def alternating(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """On `tie`, with xi_n = 1 +- 1/n: error of the mean, and W1 between one return and the next."""
    mdp = tie()
    step = jax.jit(lambda z, xi: atom_step(mdp, z, xi, merged(8)))
    z, means, laws = zero(mdp, 8), [], []
    for k in range(2, n + 2):
        sign = 1.0 if k % 2 else -1.0
        made = step(z, jnp.ones(BINS).at[-1].add(sign / k).at[0].add(-sign / k))
        z = made.z
        means.append(float(jnp.abs(made.q[:2]).max()))
        laws.append(z[0, 0])
    moves = [wasserstein(a.atoms, b.atoms, 1, weights_a=a.weights, weights_b=b.weights) for a, b in pairwise(laws)]
    return np.array(means), np.array(moves)


def without_bound() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For `concentrated` by n: E T Z - E T_xi Z, and the supremum over bounded returns, in units of V_max."""
    sizes = np.array([4, 16, 64, 256])
    losses, gaps = [], []
    for n in sizes.tolist():
        mdp, z, xi = concentrated(n)
        plain, selected = (mdp.backup(z.mean()[:, choice])[0, 0] for choice in (0, 1))
        losses.append(float((plain - selected) / mdp.v_max()))
        gaps.append(float(uniform_gap(xi, 1.0)))
    return sizes, np.array(losses), np.array(gaps)


def draw(options: Options) -> None:
    """Three panels."""
    figure, axes = figures.new(1, 3, 13, 3.9)
    colours = {"optimistic": "#d1495b", "random": "#2a6f97"}
    for name, errors in constant_sizes().items():
        style = "-" if name.endswith("constant") else ":"
        axes[0].plot(errors, color=colours[name.split(",")[0]], linestyle=style, linewidth=1.6, label=name)
    axes[0].set(title="Constant sizes do not converge", ylabel="error of the mean", ylim=(-0.02, 0.36))
    axes[0].legend(fontsize=8, loc="upper right", ncols=2)
    means, moves = alternating()
    axes[1].plot(np.arange(2, len(moves) + 2), moves, color="#d1495b", label="W1 between successive returns")
    axes[1].plot(np.arange(1, len(means) + 1), means, color="#2a6f97", label="error of the mean")
    axes[1].set(title="A tie: the mean converges, the return does not", ylim=(-0.05, 1.25))
    axes[1].legend(fontsize=8, loc="upper right")
    sizes, losses, gaps = without_bound()
    axes[2].plot(sizes, losses, "o-", color="#d1495b", markersize=4, label="loss on a Z with E|Z| ≤ V_max")
    axes[2].plot(sizes, gaps, "o-", color="#2a6f97", markersize=4, label="largest gap if |Z| ≤ V_max")
    axes[2].set(title="Uniform convergence needs a bound", ylabel="in units of V_max", ylim=(5e-3, 2))
    axes[2].set(xscale="log", yscale="log")
    for axis, label in zip(axes, ("iteration", "iteration", "n (ξ is 2 on the top share 1/n)"), strict=True):
        axis.set_xlabel(label)
    axes[2].legend(fontsize=8, loc="lower left")
    figures.save(figure, options.out / "counterexamples")


def searched(options: Options) -> str:
    """Errors on random MDPs with constant sizes, as a sentence; empty in the quick version."""
    if options.quick:
        return ""
    keys, delta = jax.random.split(jax.random.key(0), 400), 0.3
    words = []
    for name, choose in DRAWS.items():
        low, high = (np.asarray(found) for found in lasting_errors(keys, choose, delta, iterations=120))
        words.append(
            f"with {name} ξ {np.mean(high > 0.02):.0%} have an error above 0.02 somewhere in the last half of the "
            f"iterations, {np.mean(low > 0.02):.0%} throughout it, the worst by {high.max():.2f}"
        )
    return (
        f"Of {len(keys)} random MDPs (three states, two actions, γ = 0.9, 120 iterations, constant size {delta}), "
        f"{'; '.join(words)}. (The bound for constant sizes, 2γΔ/(1−γ), allows {limit_bound(delta, 0.9):.1f}.)"
    )
