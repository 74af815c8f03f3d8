"""Losses for a single transition; batch them with `jax.vmap`.

The pairwise quantile Huber loss is the cost of an update at the paper's settings, not the network. Its gradient has a
closed form, which is what is computed here; automatic differentiation of the N x M matrix takes about five times as
long in JAX (rlax) and fifty times in PyTorch: see benchmarks/RESULTS.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_UNROLL = 256
"""Target atoms per pass over the predicted ones (CPU form). With all of them in one pass, XLA compiles a single kernel
that keeps its sums in registers and runs on every core; passes of 8 to 64 measure two to three times slower. The limit
keeps compiling near a second for any M."""


def quantile_huber(
    predicted: Float[Array, "N"],
    target: Float[Array, "M"],
    levels: Float[Array, "N"],
    kappa: float = 1.0,
) -> Float[Array, ""]:
    """Quantile Huber loss of one transition: sum over predicted, mean over target.

    sum_i (1/M) sum_j |levels_i - 1{u_ij < 0}| * H_kappa(u_ij) / kappa,   u_ij = target_j - predicted_i,

    with H_kappa(u) = u^2/2 for |u| <= kappa and kappa (|u| - kappa/2) beyond. ``kappa = 0`` is its limit, plain
    quantile regression: sum_i (1/M) sum_j |levels_i - 1{u_ij < 0}| |u_ij|. Dividing by kappa makes the two agree and
    keeps the gradient's size independent of kappa; rlax and the paper leave the division out (the same at kappa 1).

    All three arrays have true gradients (a learner stops the target's by itself); those nobody asks for cost nothing.
    ``kappa`` is a Python number, because kappa = 0 is another formula.
    """
    if not isinstance(kappa, Real):
        raise TypeError(
            "kappa must be a Python number, not a traced value: bind it with functools.partial(quantile_huber, "
            "kappa=...) before jax.jit or jax.vmap"
        )
    if not 0 <= kappa < float("inf"):
        raise ValueError(f"kappa must be >= 0 and finite, got {kappa}")
    if predicted.ndim != 1 or target.ndim != 1 or levels.shape != predicted.shape:
        raise ValueError(
            "quantile_huber takes one transition: predicted[N], target[M], levels[N]; got "
            f"{predicted.shape}, {target.shape}, {levels.shape}. Batch it with jax.vmap."
        )
    return _quantile_huber(float(kappa), predicted, target, levels)


def huber(error: Float[Array, "*shape"], kappa: float = 1.0) -> Float[Array, "*shape"]:
    """H_kappa(u): u^2/2 near zero, kappa (|u| - kappa/2) beyond. Its gradient is the error clipped to +-kappa."""
    clipped = jnp.clip(error, -kappa, kappa)
    return clipped * (error - clipped / 2)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _quantile_huber(
    kappa: float, predicted: Float[Array, "N"], target: Float[Array, "M"], levels: Float[Array, "N"]
) -> Float[Array, ""]:
    up, down = _huber_sums(kappa, predicted, target)
    return jnp.sum(levels * up + (1.0 - levels) * down) / target.shape[0]


def _forward(kappa, predicted, target, levels):  # type: ignore[no-untyped-def]
    return _quantile_huber(kappa, predicted, target, levels), (predicted, target, levels)


def _backward(kappa, residuals, cotangent):  # type: ignore[no-untyped-def]
    predicted, target, levels = residuals
    m = target.shape[0]

    # d/d predicted_i = -(1/M) [ tau_i sum_j s+(u_ij) + (1 - tau_i) sum_j s-(u_ij) ], s+- the halves of clip(u)/kappa.
    up, down = _slope_sums(kappa, predicted, target)
    d_predicted = -(levels * up + (1.0 - levels) * down) / m

    # d/d target_j is the same slope summed over i, with the level inside the sum.
    d_target = _accumulate(
        target,
        (predicted, levels),
        lambda y, theta, tau: (jnp.where(y - theta < 0, 1.0 - tau, tau) * _slope(kappa, y - theta),),
    )[0]

    # d/d levels_i = (1/M) (sum of Huber where u >= 0 - sum of Huber where u < 0).
    value_up, value_down = _huber_sums(kappa, predicted, target)
    d_levels = (value_up - value_down) / m
    return cotangent * d_predicted, cotangent * d_target / m, cotangent * d_levels


_quantile_huber.defvjp(_forward, _backward)


def _slope(kappa: float, u: Array) -> Array:
    """Derivative of H_kappa(u)/kappa; its limit, the sign, at kappa 0."""
    return jnp.sign(u) if kappa == 0 else jnp.clip(u, -kappa, kappa) / kappa


def _slope_sums(kappa: float, predicted: Array, target: Array) -> tuple[Array, Array]:
    """Sums over j of the positive and of the negative part of the slope of u_ij, for each i."""
    if kappa == 0:
        return _accumulate(
            predicted,
            (target,),
            lambda theta, y: ((y > theta).astype(theta.dtype), -((y < theta).astype(theta.dtype))),
        )

    def halves(theta: Array, y: Array) -> tuple[Array, Array]:
        # Selections compile to one machine instruction each; `jnp.clip` and `jnp.maximum` take several. NaN passes on.
        u = y - theta
        u = jnp.where(kappa < u, kappa, u)
        u = jnp.where(-kappa > u, -kappa, u)
        return jnp.where(u < 0, 0.0, u), u

    up, both = _accumulate(predicted, (target,), halves)
    return up / kappa, (both - up) / kappa


def _huber_sums(kappa: float, predicted: Array, target: Array) -> tuple[Array, Array]:
    """Sums over j of H_kappa(u_ij)/kappa where u >= 0, and where u < 0, for each i."""

    def halves(theta: Array, y: Array) -> tuple[Array, Array]:
        u = y - theta
        value = jnp.abs(u) if kappa == 0 else huber(u, kappa) / kappa
        up = jnp.where(u < 0, 0.0, value)
        return up, value - up

    return _accumulate(predicted, (target,), halves)


def _accumulate(
    rows: Float[Array, "N"],
    columns: tuple[Float[Array, "M"], ...],
    terms: Callable[..., tuple[Array, ...]],
) -> Any:
    """Tuple of ``sum_j terms(rows_i, *columns_j)[N]``, in the form that suits the platform.

    On a CPU an unrolled loop over columns, vectorised over rows; an accelerator wants the dense N x M form.
    """
    n_terms = len(jax.eval_shape(terms, rows, *(c[0] for c in columns)))

    def looped(rows: Array, *columns: Array) -> tuple[Array, ...]:
        def add(sums: tuple[Array, ...], column: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
            return tuple(s + x for s, x in zip(sums, terms(rows, *column), strict=True)), None

        zeros = tuple(jnp.zeros_like(rows) for _ in range(n_terms))
        return jax.lax.scan(add, zeros, columns, unroll=min(_UNROLL, columns[0].shape[0]))[0]

    def dense(rows: Array, *columns: Array) -> tuple[Array, ...]:
        return tuple(x.sum(-1) for x in terms(rows[:, None], *(c[None, :] for c in columns)))

    return jax.lax.platform_dependent(rows, *columns, cpu=looped, default=dense)


def project(atoms: Float[Array, "M"], weights: Float[Array, "M"], support: Float[Array, "N"]) -> Float[Array, "N"]:
    """Masses on an equally spaced support: each atom's mass is shared by its two neighbours, so that its mean stays.

    m_i = sum_j w_j max(0, 1 - |y_j - z_i| / dz), y_j clipped to the ends of the support.
    """
    distance = support[1] - support[0]
    clipped = jnp.clip(atoms, support[0], support[-1])
    shares = jnp.clip(1.0 - jnp.abs(clipped[None, :] - support[:, None]) / distance, 0.0, 1.0)
    return shares @ weights


def share_outside(atoms: Float[Array, "M"], weights: Float[Array, "M"], low: float, high: float) -> Float[Array, ""]:
    """Mass of the atoms beyond [low, high]."""
    return jnp.where((atoms < low) | (atoms > high), weights, 0.0).sum()


def categorical_cross_entropy(predicted: Float[Array, "N"], target: Float[Array, "N"]) -> Float[Array, ""]:
    """-sum_i target_i log predicted_i."""
    return -(target * jnp.log(jnp.maximum(predicted, jnp.finfo(predicted.dtype).tiny))).sum()


def squared_mmd(x: Float[Array, "N"], y: Float[Array, "M"], n_bandwidths: int = 10) -> Float[Array, ""]:
    """MMD^2 = mean k(x, x') + mean k(y, y') - 2 mean k(x, y) over all pairs, k(d) = sum_{h=1..H} exp(-d^2/h).

    Not below 0, which rounding could bring it to.
    """

    def mean_kernel(a: Array, b: Array) -> Array:
        square = (a[:, None] - b[None, :]) ** 2
        return jnp.stack([jnp.exp(-square / h).mean() for h in range(1, n_bandwidths + 1)]).sum()

    return jnp.maximum(mean_kernel(x, x) + mean_kernel(y, y) - 2.0 * mean_kernel(x, y), 0.0)
