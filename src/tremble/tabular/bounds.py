"""Bounds on the error of perturbed iteration: the theorem's, in both its forms, and a sharper one.

With e_n = ||E Z^(n) - Q*|| and gaps Delta_n:

    0 <= E T Z - E T_xi Z <= 2 gamma Delta_n                       (selection by xi costs at most two gaps, discounted)
    e_n <= gamma e_(n-1) + 2 gamma Delta_n                          (E T is a gamma-contraction on means)
    e_n <= gamma^n e_0 + 2 sum_i gamma^(n+1-i) Delta_i              (unrolled)

so Delta_n -> 0 suffices for e_n -> 0: the sum of the Delta_n need not be finite.
"""

from __future__ import annotations

import numpy as np


def recursive(start: float, gaps: np.ndarray, gamma: float) -> np.ndarray:
    """Bounds of e_0 .. e_n by e_n <= gamma e_(n-1) + 2 gamma Delta_n."""
    bounds = [start]
    for gap in gaps:
        bounds.append(gamma * bounds[-1] + 2.0 * gamma * float(gap))
    return np.array(bounds)


def theorem(n: int, deltas: np.ndarray, gamma: float, v_max: float, form: str = "proof") -> np.ndarray:
    """The paper's bound of e_1 .. e_n, from Delta_1, Delta_2, ...:

    sum_{k >= n} ( 2 gamma^k V_max + 2 sum_{i=1..k} gamma^i (Delta_{k+2-i} + Delta_{k+1-i}) ), in the form of its proof;
    its ``statement`` has gamma^(k-1) instead of gamma^k in the first term. The sum ends where ``deltas`` does, which
    makes it too small, so give many more of them than n.
    """
    last = len(deltas) - 1  # Delta_{k+1} must exist
    terms = []
    for k in range(1, last + 1):
        i = np.arange(1, k + 1)
        inner = np.sum(gamma**i * (deltas[k + 1 - i] + deltas[k - i]))
        terms.append(2 * gamma ** (k if form == "proof" else k - 1) * v_max + 2 * inner)
    tails = np.cumsum(np.array(terms)[::-1])[::-1]
    return tails[:n]
