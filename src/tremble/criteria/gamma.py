"""Logarithms of gamma variables, many at a time and quickly: what a draw of PQR is made of.

Two draws of 200 variables are made in every training step, so their price shows. `jax.random.loggamma` redraws element
by element: that takes some fifteen times as long and would be a fifth of a step.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def log_gammas(key: PRNGKeyArray, n: int, shape: Float[Array, ""]) -> Float[Array, "n"]:
    """Logarithms of n independent Gamma(shape) variables, any shape > 0; minus infinity for others.

    Any accepted candidate is as good as another, so spare ones are drawn with the rest and the first n accepted are
    taken. So many are spare that fewer than n are accepted with probability below 1e-20, and no loop waits for that.
    """
    m = n + 24 + n // 8
    # Behind a branch that is always taken: otherwise XLA computes the candidates once more for each of their uses.
    value = jax.lax.cond(shape > 0, lambda: _candidates(key, m, shape), lambda: jnp.full(m, -jnp.inf, shape.dtype))
    count = _running_count(value < jnp.inf)
    place = jnp.where(jnp.diff(count, prepend=0) > 0, count - 1, n)
    drawn = jnp.zeros(n, shape.dtype).at[place].set(value, mode="drop")
    # Without the branch (vmapped over shapes) two kernels may round a candidate to different sides of acceptance, once
    # in ten million. Its U is 1 and the variable near its mean for shape + 1, so 1 does for it.
    return jnp.where(drawn < jnp.inf, drawn, 0.0)


def _candidates(key: PRNGKeyArray, m: int, shape: Float[Array, ""]) -> Float[Array, "m"]:
    """Log Gamma(shape) by Marsaglia and Tsang's rejection, at least 95 of 100 accepted; infinite where rejected.

    For shape + 1, with x normal and u uniform: v = (1 + c x)^3 is accepted if u < p(x); then d v is Gamma(shape + 1).
    The factor U^(1/shape) makes Gamma(shape) of it. Given that u was accepted, u / p is uniform and independent of x,
    so U need not be drawn.
    """
    d = shape + 2.0 / 3.0
    c = 1.0 / jnp.sqrt(9.0 * d)
    first, second = (_uniform(word).astype(shape.dtype) for word in threefry(jax.random.bits(key, (2,)), m))
    x = math.sqrt(2.0) * jax.lax.erf_inv(2.0 * first - 1.0)
    v = (1.0 + c * x) ** 3
    log_v = jnp.log(jnp.where(v > 0, v, 1.0))
    log_p = jnp.minimum(0.5 * x**2 + d * (1.0 - v + log_v), 0.0)
    log_u = jnp.log(second)
    accepted = (v > 0) & (log_u < log_p)
    return jnp.where(accepted, jnp.log(d) + log_v + (log_u - log_p) / shape, jnp.inf)


def _uniform(word: UInt32[Array, "m"]) -> Float[Array, "m"]:
    """The midpoint of one of 2^23 equal parts of [0, 1]: exact in float32, and neither 0 nor 1."""
    return ((word >> 9).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-23


def threefry(key: UInt32[Array, "2"], m: int) -> tuple[UInt32[Array, "m"], UInt32[Array, "m"]]:
    """Threefry-2x32 of the counters 0 .. m - 1: two words each, where `jax.random.bits` gives one.

    Written out round by round, so that it becomes part of the kernel that uses the words: on a CPU JAX has a loop,
    which takes four times as long.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    left = jnp.broadcast_to(keys[0], (m,))
    right = jnp.arange(m, dtype=jnp.uint32) + keys[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            left = left + right
            right = ((right << distance) | (right >> (32 - distance))) ^ left
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return left, right


def _running_count(flags: Bool[Array, "m"]) -> Int[Array, "m"]:
    """`jnp.cumsum` of flags as two small products with triangles of ones, which take a third of the time on a CPU."""
    m = flags.shape[0]
    side = math.isqrt(m - 1) + 1
    square = jnp.pad(flags.astype(jnp.float32), (0, side * side - m)).reshape(side, side)
    upper = jnp.triu(jnp.ones((side, side), jnp.float32))
    within = square @ upper
    before = within[:, -1] @ jnp.triu(upper, 1)
    return (within + before[:, None]).reshape(-1)[:m].astype(jnp.int32)
