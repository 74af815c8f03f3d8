"""Losses for a single transition; batch them with `jax.vmap`.

The pairwise quantile Huber loss is the cost of an update at the paper's settings, not the network. Its gradient has a
closed form, which is what is computed here; automatic differentiation of the N x M matrix takes about ten times as long
in JAX (rlax) and a hundred times in PyTorch at 128 transitions of 170 atoms: see benchmarks/RESULTS.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_BLOCK = 8
"""Target atoms whose terms are added up before they join the sum over all of them (CPU form). A single sum would wait
for every addition to end before the next begins; blocks are independent of each other, and round less."""
_UNROLL = 32
"""Blocks per pass over the predicted atoms, where a term takes few instructions. With all of them in one pass, XLA
compiles a single kernel that keeps its sums in registers and runs on every core; shorter passes measure two to three
times slower. The limit keeps compiling near a second for any M. A term with exponentials wants one block a pass."""


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
    def term(theta: Array, skew: Array, y: Array) -> Array:
        value, signed = _huber_and_signed(kappa, y - theta)
        return value + skew * signed

    return 0.5 * jnp.sum(_accumulate((predicted, _skew(levels)), (target,), term)) / target.shape[0]


def _forward(kappa, predicted, target, levels):  # type: ignore[no-untyped-def]
    return _quantile_huber(kappa, predicted, target, levels), (predicted, target, levels)


def _backward(kappa, residuals, cotangent):  # type: ignore[no-untyped-def]
    predicted, target, levels = residuals
    scale = cotangent / target.shape[0]
    skew = _skew(levels)

    def slope(theta: Array, skew: Array, y: Array) -> Array:
        # Of theta - y, not y - theta: a machine subtracts what it loads from what it holds in one instruction.
        clipped = _clip(kappa, theta - y)
        return clipped - skew * jnp.abs(clipped)

    # Summed over j it is the prediction's derivative, over i the target's with the other sign.
    half = 0.5 * scale / (kappa or 1.0)
    d_predicted = half * _accumulate((predicted, skew), (target,), slope)
    d_target = -half * _accumulate((target,), (predicted, skew), lambda y, theta, skew: slope(theta, skew, y))

    # The loss is linear in the levels: Huber where u >= 0 less Huber where u < 0.
    d_levels = scale * _accumulate((predicted,), (target,), lambda theta, y: _huber_and_signed(kappa, y - theta)[1])
    return d_predicted, d_target, d_levels


_quantile_huber.defvjp(_forward, _backward)


def _skew(levels: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """c = 2 tau - 1, with which the weight of an error is |tau - 1{u < 0}| = (1 + c sign(u)) / 2.

    In this form a slope s takes one multiplication and no selection: its weighted double is s + c |s|.
    """
    return 2.0 * levels - 1.0


def _clip(kappa: float, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """The error clipped to +-kappa, its sign at kappa 0: the slope of H_kappa / kappa but for a division by kappa.

    Selections compile to one machine instruction each; `jnp.clip` and `jnp.sign` take several. NaN passes through.
    """
    if kappa == 0:
        return jnp.where(u > 0, 1.0, jnp.where(u < 0, -1.0, u))
    u = jnp.where(kappa < u, kappa, u)
    return jnp.where(-kappa > u, -kappa, u)


def _huber_and_signed(kappa: float, u: Array) -> tuple[Array, Array]:
    """H_kappa(u) / kappa (|u| at kappa 0), and the same with the sign of u."""
    value = jnp.abs(u) if kappa == 0 else huber(u, kappa) / kappa
    return value, jnp.where(u < 0, -value, value)


def _accumulate(
    rows: tuple[Float[Array, "N"], ...],
    columns: tuple[Float[Array, "M"], ...],
    term: Callable[..., Array],
    unroll: int = _UNROLL,
) -> Float[Array, "N"]:
    """``sum_j term(*rows_i, *columns_j)`` for every i, in the form that suits the platform.

    On a CPU a loop over blocks of columns, ``unroll`` of them in a pass, vectorised over rows; an accelerator wants the
    dense N x M form.
    """
    n_rows = len(rows)

    def looped(*arrays: Array) -> Array:
        rows, columns = arrays[:n_rows], arrays[n_rows:]

        def add(total: Array, block: tuple[Array, ...]) -> tuple[Array, None]:
            return total + sum(term(*rows, *(c[j] for c in block)) for j in range(block[0].shape[0])), None

        n_blocks = columns[0].shape[0] // _BLOCK
        whole = tuple(c[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK) for c in columns)
        rest = tuple(c[n_blocks * _BLOCK :] for c in columns)
        total, _ = jax.lax.scan(add, jnp.zeros_like(rows[0]), whole, unroll=min(unroll, max(n_blocks, 1)))
        return add(total, rest)[0]

    def dense(*arrays: Array) -> Array:
        rows, columns = arrays[:n_rows], arrays[n_rows:]
        return term(*(r[:, None] for r in rows), *(c[None, :] for c in columns)).sum(-1)

    return jax.lax.platform_dependent(*rows, *columns, cpu=looped, default=dense)


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


N_BANDWIDTHS = 10
"""H of `squared_mmd`, as published."""


@jax.custom_vjp
def squared_mmd(x: Float[Array, "N"], y: Float[Array, "M"]) -> Float[Array, ""]:
    """MMD^2 = mean k(x, x') + mean k(y, y') - 2 mean k(x, y) over all pairs, k(d) = sum_{h=1..H} exp(-d^2/h).

    Not below 0, which rounding could bring it to. The gradient is that of the formula without this limit,

        dMMD^2/dx_i = 2/N mean_j k'(x_i - x_j) - 2/N mean_j k'(x_i - y_j),

    and the same for y: a learner, which asks for that of x only, never computes the pairs of y.
    """

    def mean_kernel(a: Array, b: Array) -> Array:
        return _sum_over(a, b, lambda d: _exponentials(d, lambda e, h: e)).mean() / b.shape[0]

    return jnp.maximum(mean_kernel(x, x) + mean_kernel(y, y) - 2.0 * mean_kernel(x, y), 0.0)


def _mmd_forward(x, y):  # type: ignore[no-untyped-def]
    return squared_mmd(x, y), (x, y)


def _mmd_backward(residuals, cotangent):  # type: ignore[no-untyped-def]
    x, y = residuals

    def half(own: Array, other: Array) -> Array:
        """Half the gradient in ``own``; k'(d) = -2 d sum_h exp(-d^2/h)/h."""

        def slope(d: Array) -> Array:
            return -2.0 * d * _exponentials(d, lambda e, h: e / h)

        return _sum_over(own, own, slope) / own.shape[0] - _sum_over(own, other, slope) / other.shape[0]

    return 2.0 * cotangent * half(x, y) / x.shape[0], 2.0 * cotangent * half(y, x) / y.shape[0]


squared_mmd.defvjp(_mmd_forward, _mmd_backward)


def _exponentials(d: Float[Array, "*shape"], term: Callable[[Array, int], Array]) -> Float[Array, "*shape"]:
    """sum_{h=1..H} term(exp(-d^2/h), h). For h <= H/2 the exponential is the square of that for 2h."""
    square, found = d * d, dict[int, Array]()
    for h in range(N_BANDWIDTHS, 0, -1):
        if 2 * h in found:
            root = jnp.maximum(found[2 * h], 0.0)  # changes nothing, but XLA would turn the square into an exponential
            found[h] = root * root
        else:
            found[h] = jnp.exp(square * (-1.0 / h))
    return sum((term(e, h) for h, e in found.items()), jnp.zeros_like(d))


def _sum_over(a: Float[Array, "N"], b: Float[Array, "M"], of: Callable[[Array], Array]) -> Float[Array, "N"]:
    """sum_j of(a_i - b_j) for every i."""
    return _accumulate((a,), (b,), lambda a, b: of(a - b), unroll=1)
