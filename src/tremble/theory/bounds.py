"""Bounds on the error of perturbed iteration: the theorem's, in two forms, and a sharper one.

With e_n = ||E Z^(n) - Q*|| and gaps Delta_n:

    0 <= E T Z - E T_xi Z <= 2 gamma Delta_n                       (loss by selecting with xi)
    e_n <= gamma e_(n-1) + 2 gamma Delta_n                          (E T is a gamma-contraction on means)
    e_n <= gamma^n e_0 + 2 sum_i gamma^(n+1-i) Delta_i              (unrolled)

so Delta_n -> 0 suffices for e_n -> 0; the Delta_n need not be summable.
"""

from __future__ import annotations

from typing import Literal

import numpy as np


def recursive(start: float, gaps: np.ndarray, gamma: float) -> np.ndarray:
    """Bounds of e_0 .. e_n by e_n <= gamma e_(n-1) + 2 gamma Delta_n."""
    bounds = [start]
    for gap in gaps:
        bounds.append(gamma * bounds[-1] + 2.0 * gamma * float(gap))
    return np.array(bounds)


def theorem(
    n: int,
    deltas: np.ndarray,
    gamma: float,
    v_max: float,
    form: Literal["proof", "statement"] = "proof",
    rest: float = 0.0,
) -> np.ndarray:
    """The paper's bound of e_1 .. e_n, from Delta_1, Delta_2, ... of which at least n + 1 are given:

        sum_{k >= n} ( 2 gamma^k V_max + 2 sum_{i=1..k} gamma^i (Delta_{k+2-i} + Delta_{k+1-i}) ),

    in the form of its proof; its ``statement`` has gamma^(k-1) instead of gamma^k in the first term. The sum over k is
    infinite. Exchanged with the one over i it is geometric: Delta_m enters with the weight
    gamma^max(1, n - m + 1) / (1 - gamma), and Delta_{m+1} with the same; so only the ``rest``, the sum of all Delta
    that are not given, is needed in addition. A schedule that is not summable has rest = inf, and no bound.
    """
    if len(deltas) <= n:
        raise ValueError(f"the bound of e_{n} needs at least {n + 1} sizes, got {len(deltas)}")
    steps, m = np.arange(1, n + 1)[:, None], np.arange(1, len(deltas))
    pairs = deltas[:-1] + deltas[1:]  # Delta_m + Delta_{m+1}
    weight = gamma ** np.maximum(1, steps - m + 1)
    tail = gamma * (deltas[-1] + 2 * rest)  # the last one given lacks its successor; then every Delta comes twice
    first = gamma ** (steps[:, 0] - (0 if form == "proof" else 1)) * v_max
    return np.asarray(2 * (first + weight @ pairs + tail) / (1 - gamma))
