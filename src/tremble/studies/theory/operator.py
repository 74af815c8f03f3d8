"""The perturbed operator on a thousand random MDPs: errors, gaps and bounds under three schedules and three draws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy import special

from tremble.report import figures, tables
from tremble.studies.kit import Options
from tremble.theory import Grid, iterate, random_draw, random_mdp, risky_grid, top_draw, worst_draw
from tremble.theory.atoms import Reduction, atom_step, merged, quantiles, zero
from tremble.theory.bounds import recursive, theorem
from tremble.wasserstein import wasserstein
from tremble.worlds.risky_grid import RiskyGrid

GAMMA, BINS, ITERATIONS, SCALE = 0.9, 20, 1000, 0.05
"""Sizes of the ambiguity sets are in units of V_max, Delta_n = 0.05 V_max x schedule, to be comparable between MDPs."""
RISKY_GRID = RiskyGrid(stake=1.0, loss=0.2)
"""The risky grid with gambles that cost something on average, so that going around them is optimal."""
T = np.arange(1.0, ITERATIONS + 1)
SCHEDULES = {
    "t^-1.001": (T**-1.001, "#2a6f97"),
    "√(log t / t)": (np.sqrt(np.log(T + 1) / T), "#e09f3e"),
    "constant": (np.ones(ITERATIONS), "#d1495b"),
}
"""By name: sizes in units of `SCALE`, and a colour. The first is the paper's, and the only one with a finite sum."""
DRAWS = {
    "random": (random_draw(BINS), (5, 3, 3)),
    "optimistic": (top_draw(BINS), (4, 2, 3)),
    "worst case": (worst_draw(BINS), (3, 3, 2)),
}
"""By name: how xi is chosen, always with the gap at its bound, and states, actions and rewards of the MDPs."""


@dataclass(frozen=True)
class Paths:
    """Errors and bounds under one draw and one schedule, in units of V_max: ``[mdps, iterations]``."""

    errors: np.ndarray
    """e_1 .. e_n."""
    bounds: np.ndarray
    """Recursive bound of the errors, from the measured gaps."""
    losses: np.ndarray
    """Largest entry of E T Z - E T_xi Z."""
    lowest: np.ndarray
    """Smallest entry."""
    gaps: np.ndarray


@partial(jax.jit, static_argnames="draw")
def _walk(keys: Key[Array, "schedules mdps"], sizes: Float[Array, "schedules n"], draw: str):  # type: ignore[no-untyped-def]
    choose, shape = DRAWS[draw]

    def one(key, schedule):  # type: ignore[no-untyped-def]
        make, walk = jax.random.split(key)
        mdp = random_mdp(make, *shape, gamma=GAMMA)
        path = iterate(mdp, Grid.of(mdp), choose, schedule * mdp.v_max(), walk, mdp.optimal_q(300))
        return jax.tree.map(lambda x: x / mdp.v_max(), (path.errors, path.gaps, path.losses_low, path.losses_high))

    return jax.vmap(jax.vmap(one, (0, None)))(keys, sizes)


def walk(n_mdps: int) -> dict[tuple[str, str], Paths]:
    """By draw and schedule; ``n_mdps`` for each pair."""
    sizes = jnp.asarray(np.stack([SCALE * schedule for schedule, _ in SCHEDULES.values()]), jnp.float32)
    found = {}
    for number, draw in enumerate(DRAWS):
        keys = jax.random.split(jax.random.key(number), (len(SCHEDULES), n_mdps))
        made = jax.device_get(_walk(keys, sizes, draw))
        for schedule, errors, gaps, low, high in zip(SCHEDULES, *made, strict=True):
            bounds = np.stack([recursive(float(e[0]), g, GAMMA)[1:] for e, g in zip(errors, gaps, strict=True)])
            found[draw, schedule] = Paths(errors[:, 1:], bounds, high, low, gaps)
    return found


def theorem_bounds() -> tuple[np.ndarray, np.ndarray]:
    """The paper's bound of e_1 .. e_n in units of V_max, for its own schedule, as proved and as stated.

    The infinite sum is exact.
    """
    deltas = SCALE * np.arange(1.0, ITERATIONS + 2) ** -1.001
    rest = SCALE * float(special.zeta(1.001, ITERATIONS + 2))
    bound = partial(theorem, ITERATIONS, deltas, GAMMA, 1.0, rest=rest)
    return bound("proof"), bound("statement")


def clear(errors: np.ndarray) -> np.ndarray:
    """Clip to 1e-7, the resolution of float32, for a logarithmic axis."""
    return np.maximum(errors, 1e-7)


def draw_bounds(paths: dict[tuple[str, str], Paths], options: Options) -> None:
    """Errors, the recursive bound and the theorem's bound."""
    figure, axes = figures.new(1, 2, 10.5, 4.2, sharey=True)
    for axis, schedule in zip(axes, list(SCHEDULES)[:2], strict=True):
        found = paths["random", schedule]
        if schedule == "t^-1.001":
            proof, statement = theorem_bounds()
            axis.plot(T, statement, color="#111111", linestyle=":", label="theorem, as stated")
            axis.plot(T, proof, color="#6b7280", linewidth=1.2, label="theorem, as proved")
        else:
            axis.text(0.5, 0.93, "theorem: no bound, the sizes are not summable", transform=axis.transAxes, ha="center")
        hurt = paths["worst case", schedule]
        # The largest bound for the largest error: an error may exceed the bound of another MDP.
        bound = np.maximum(found.bounds.max(0), hurt.bounds.max(0))
        axis.plot(T, bound, color="#d1495b", linewidth=2, label="recursive bound, largest of all MDPs")
        axis.plot(T, clear(hurt.errors.max(0)), color="#e09f3e", linewidth=1.2, label="error, worst-case ξ, worst MDP")
        low, middle, high = (clear(errors) for errors in np.quantile(found.errors, [0.0, 0.5, 1.0], axis=0))
        axis.fill_between(T, low, high, color="#2a6f97", alpha=0.2, linewidth=0, label="error, random ξ, all MDPs")
        axis.plot(T, middle, color="#2a6f97", linewidth=2, label="error, random ξ, median MDP")
        axis.set(xscale="log", yscale="log", xlabel="iteration n", title=f"sizes {SCALE:g} V_max × {schedule}")
    axes[0].set(ylabel="error of the mean / V_max", ylim=(1e-7, 1e5))
    axes[0].legend(loc="lower left", fontsize=8)
    figures.save(figure, options.out / "bounds")


def draw_schedules(paths: dict[tuple[str, str], Paths], options: Options) -> None:
    """Median and worst error over MDPs; one panel per draw, one colour per schedule."""
    figure, axes = figures.new(1, len(DRAWS), 12, 3.8, sharey=True)
    for axis, draw in zip(axes, DRAWS, strict=True):
        for schedule, (_, colour) in SCHEDULES.items():
            errors = clear(paths[draw, schedule].errors)
            axis.plot(T, np.median(errors, 0), color=colour, linewidth=2, label=f"{schedule}: median")
            axis.plot(T, errors.max(0), color=colour, linewidth=0.9, linestyle="--", label=f"{schedule}: worst MDP")
        axis.set(xscale="log", yscale="log", xlabel="iteration n", title=f"{draw} ξ")
    axes[0].set(ylabel="error of the mean / V_max", ylim=(1e-7, 2))
    axes[0].legend(fontsize=7.5, loc="lower left")
    figures.save(figure, options.out / "schedules")


def write_data(paths: dict[tuple[str, str], Paths], options: Options) -> None:
    """Write quantiles over MDPs at selected iterations."""
    chosen = np.unique(np.geomspace(1, ITERATIONS, 25).astype(int)) - 1
    unknown, rows = (np.full(ITERATIONS, np.inf),) * 2, []
    for (draw, schedule), found in paths.items():
        theirs = np.stack(theorem_bounds() if schedule == "t^-1.001" else unknown)
        errors = np.quantile(found.errors, [0.05, 0.5, 0.95, 1.0], axis=0)
        numbers = np.concatenate([errors, np.median(found.bounds, 0)[None], theirs])
        rows += [[draw, schedule, k + 1, *(f"{number:.4g}" for number in numbers[:, k])] for k in chosen]
    names = [f"error_{name}" for name in ("p05", "median", "p95", "max")]
    header = ["draw", "schedule", "iteration", *names, "recursive_median", "theorem_proof", "theorem_statement"]
    tables.write_csv(options.out / "operator.csv", header, rows)


def summary(paths: dict[tuple[str, str], Paths]) -> str:
    """Number of violations of the bounds, and their tightness."""
    rows = []
    slack = 5e-5  # float32, in units of V_max
    for (draw, schedule), found in paths.items():
        allowed = 2 * GAMMA * found.gaps
        broken = (found.lowest < -slack) | (found.losses > allowed + slack) | (found.errors > found.bounds + 20 * slack)
        nearest, end = (found.losses / np.maximum(allowed, 1e-3)).max(), found.errors[:, -1]
        shown = [f"{nearest:.2f}", f"{np.median(end):.1e}", f"{end.max():.1e}"]
        rows.append([draw, schedule, len(end), int(broken.sum()), *shown])
    header = ["ξ", "schedule", "MDPs", "violations", "loss / 2γΔ, largest", "last error, median", "worst MDP"]
    return tables.markdown(header, rows, 2)


def projections(options: Options) -> str:
    """Bias of each projection after 100 iterations of the ordinary operator on the risky grid."""
    mdp = risky_grid(RISKY_GRID)
    optimal, ones = mdp.optimal_q(400), jnp.ones(BINS)
    kinds: dict[str, tuple[Reduction, int, bool]] = {"exact atoms, capped at 64": (merged(64), 64, True)}
    for n in (5,) if options.quick else (5, 25, 125):
        kinds[f"{n} quantiles"] = (quantiles(n), n, False)
    rows = []
    for name, (reduce, n, weighted) in kinds.items():
        step = jax.jit(lambda z, reduce=reduce: atom_step(mdp, z, ones, reduce))
        z = zero(mdp, n, weighted)
        for _ in range(100):
            last = step(z)
            z = last.z
        full, kept = (jax.device_get((d.atoms, d.weights)) for d in (last.full, last.z))
        moved = max(
            wasserstein(full[0][at], kept[0][at], 1, weights_a=full[1][at], weights_b=kept[1][at])
            for at in np.ndindex(mdp.n_states - 1, mdp.n_actions)
        )
        bias, error = (float(jnp.abs(x[:-1]).max()) for x in (last.bias, z.mean() - optimal))
        rows.append([name, f"{bias:.1e}", f"{moved:.1e}", f"{error:.1e}"])
    return tables.markdown(["kept", "bias of one step", "W1 of one step", "error of the mean after 100"], rows)
