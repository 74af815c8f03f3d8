"""The algebra of weighted atoms, against NumPy, SciPy and arithmetic done by hand.

Properties run in float64, so that a tolerance is about the formula and not about rounding. Masses are drawn as whole
numbers: a distribution can then be expanded into equally heavy atoms, which gives exact oracles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tremble.dist import ReturnDist
from tremble.wasserstein import wasserstein

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
SIZES = (4, 5)


@dataclass(frozen=True)
class Law:
    """Atoms with whole-number masses."""

    atoms: np.ndarray
    masses: np.ndarray
    equal: bool

    @property
    def weights(self) -> np.ndarray:
        return self.masses / self.masses.sum()

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray | None]:
        """What a `ReturnDist` is built from."""
        return self.atoms, None if self.equal else self.weights

    def expanded(self, times: int = 1) -> np.ndarray:
        """Sorted, each atom as often as its mass says: all of the same weight."""
        return np.sort(np.repeat(self.atoms, self.masses * times))


@st.composite
def laws(draw: st.DrawFn, sizes: tuple[int, ...] = SIZES, equal: bool | None = None) -> Law:
    """Atoms in eighths (so that some coincide), in any order, masses 0 to 6 or all equal."""
    n = draw(st.sampled_from(sizes))
    atoms = np.array(draw(st.lists(st.integers(-80, 80), min_size=n, max_size=n)), float) / 8
    if equal or (equal is None and draw(st.booleans())):
        return Law(atoms, np.ones(n, int), True)
    masses = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n).filter(lambda m: sum(m) > 0))
    return Law(atoms, np.array(masses), False)


@jax.jit
def _measure(arrays: Any, at: dict[str, Any]) -> dict[str, Any]:
    d = ReturnDist(*arrays)
    return {
        "mean": d.mean(),
        "variance": d.variance(),
        "std": d.std(),
        "min": d.min(),
        "max": d.max(),
        "quantile": d.quantile(at["level"]),
        "cdf": d.cdf(at["x"]),
        "sorted": d.sorted(),
        "ordered": (d.ordered("sorted").atoms, d.ordered("index").atoms),
        "cumulative": d.cumulative(),
        "levels": d.levels,
        "affine": d.affine(at["shift"], at["scale"]),
        "cvar": d.cvar(at["eta"]),
        "identity": [d.distorted_mean(lambda u: u, order) for order in ("index", "sorted")],
        "squared": d.distorted_mean(lambda u: u**2),
        "squared by index": d.distorted_mean(lambda u: u**2, "index"),
        "upper variance": {
            (order, median): d.upper_variance(order, median)
            for order in ("index", "sorted")
            for median in ("lower", "upper")
        },
        "crossing": d.crossing_rate(),
    }


def measure(law: Law, **at: float) -> dict[str, Any]:
    """All numbers of a law, in one compiled function: one by one they would be compiled for every size."""
    return _measure(law.arrays, {"level": 0.3, "x": 0.0, "shift": 1.0, "scale": 0.5, "eta": 0.35} | at)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@given(law=laws())
def test_moments_and_range(law: Law):
    got, every = measure(law), law.expanded()
    np.testing.assert_allclose(got["mean"], every.mean(), **TOLERANCE)
    np.testing.assert_allclose(got["variance"], every.var(), **TOLERANCE)
    # The root magnifies the rounding of a variance that is zero.
    np.testing.assert_allclose(got["std"], every.std(), rtol=1e-9, atol=1e-6)
    assert (got["min"], got["max"]) == (every.min(), every.max())


@given(law=laws(), level=st.integers(1, 97))
def test_quantile_is_the_smallest_atom_that_reaches_the_level(law: Law, level: int):
    # Levels in 97ths meet a step of the CDF (a fraction over at most 30) exactly or miss it by more than 3e-4.
    every = law.expanded()
    assert measure(law, level=level / 97)["quantile"] == every[int(np.ceil(level * len(every) / 97)) - 1]


@given(law=laws(), step=st.integers(1, 30))
def test_quantile_at_the_steps_of_the_cdf(law: Law, step: int):
    every = law.expanded()
    k = min(step, len(every))
    assert measure(law, level=k / len(every))["quantile"] == every[k - 1]


@given(law=laws(), x=st.integers(-85, 85))
def test_cdf(law: Law, x: int):
    np.testing.assert_allclose(measure(law, x=x / 8)["cdf"], (law.expanded() <= x / 8).mean(), **TOLERANCE)


@given(law=laws())
def test_order_and_levels(law: Law):
    got = measure(law)
    dist, (by_value, by_index) = got["sorted"], got["ordered"]
    np.testing.assert_array_equal(dist.atoms, np.sort(law.atoms))
    np.testing.assert_array_equal(by_value, np.sort(law.atoms))
    np.testing.assert_array_equal(by_index, law.atoms)
    for x in law.atoms:
        mass = np.asarray(dist.weights)[np.asarray(dist.atoms) == x].sum()
        np.testing.assert_allclose(mass, law.weights[law.atoms == x].sum(), **TOLERANCE)
    np.testing.assert_allclose(dist.levels, np.cumsum(dist.weights) - np.asarray(dist.weights) / 2, **TOLERANCE)
    np.testing.assert_allclose(got["levels"], np.cumsum(law.weights) - law.weights / 2, **TOLERANCE)
    np.testing.assert_allclose(got["cumulative"], np.cumsum(law.weights), **TOLERANCE)
    assert got["cumulative"][-1] == 1.0


@given(law=laws(), shift=st.floats(-50, 50), scale=st.floats(-3, 3))
def test_affine_is_the_law_of_shift_plus_scale_z(law: Law, shift: float, scale: float):
    moved = measure(law, shift=shift, scale=scale)["affine"]
    np.testing.assert_allclose(moved.atoms, shift + scale * law.atoms, **TOLERANCE)
    np.testing.assert_allclose(moved.weights, law.weights, **TOLERANCE)
    assert moved.equal_mass == law.equal


@given(law=laws(), eta=st.floats(0.01, 1.0))
def test_cvar_is_the_mean_of_the_worst_share(law: Law, eta: float):
    # Walk up the sorted atoms and take mass until the share is full.
    left, total = eta, 0.0
    every = law.expanded()
    for x in every:
        taken = min(left, 1 / len(every))
        total += taken * x
        left -= taken
    np.testing.assert_allclose(measure(law, eta=eta)["cvar"], total / eta, rtol=1e-7, atol=1e-9)


@given(law=laws())
def test_identity_distortion_is_the_mean(law: Law):
    got = measure(law)
    np.testing.assert_allclose(got["identity"], np.full(2, got["mean"]), **TOLERANCE)


@given(law=laws())
def test_a_convex_distortion_looks_at_the_top(law: Law):
    # h(u) = u^2 is the mean of the larger of two independent draws.
    every = law.expanded()
    larger = np.maximum(every[:, None], every[None, :]).mean()
    np.testing.assert_allclose(measure(law)["squared"], larger, **TOLERANCE)


def test_distortion_by_index_does_not_sort():
    # h(u) = u^2 on four atoms gives them the weights 1/16, 3/16, 5/16, 7/16, here in output order.
    dist = ReturnDist(jnp.array([8.0, 0.0, 16.0, -16.0]))
    assert dist.distorted_mean(lambda u: u**2, "index") == (8 * 1 + 0 * 3 + 16 * 5 - 16 * 7) / 16
    assert dist.distorted_mean(lambda u: u**2, "sorted") == (-16 * 1 + 0 * 3 + 8 * 5 + 16 * 7) / 16


@given(first=laws((5,)), second=laws((4,)))
def test_wasserstein(first: Law, second: Law):
    weights = {"weights_a": first.weights, "weights_b": second.weights}
    w1, w2 = (wasserstein(first.atoms, second.atoms, p, **weights) for p in (1, 2))
    swapped = wasserstein(second.atoms, first.atoms, 2, weights_a=second.weights, weights_b=first.weights)
    itself = wasserstein(first.atoms, first.atoms, 2, weights_a=first.weights, weights_b=first.weights)
    expected = scipy.stats.wasserstein_distance(first.atoms, second.atoms, first.weights, second.weights)
    np.testing.assert_allclose(w1, expected, **TOLERANCE)
    # Expanded to a common number of equal atoms, the distance couples the k-th with the k-th. Levels that coincide only
    # up to 1e-16 leave slivers of that width, whose root shows when the distance is zero.
    gap = np.abs(first.expanded(int(second.masses.sum())) - second.expanded(int(first.masses.sum())))
    np.testing.assert_allclose(w2, (gap**2).mean() ** (1 / 2), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(swapped, w2, rtol=1e-9, atol=1e-6)
    assert itself == 0


def test_wasserstein_by_hand():
    # Q1 = 0 on all levels; Q2 = -3 on [0, 1/4], 1 on [1/4, 1]: W1 = 3/4 + 3/4, W2^2 = 9/4 + 3/4.
    distances = [wasserstein([0.0], [1.0, -3.0], p, weights_b=[0.75, 0.25]) for p in (1, 2, 3)]
    # W3^3 = 27/4 + 3/4
    np.testing.assert_allclose(distances, [1.5, np.sqrt(3.0), 7.5 ** (1 / 3)], rtol=1e-12)


def test_upper_variance_of_four_atoms_by_hand():
    dist = ReturnDist(jnp.array([0.0, 1.0, 3.0, 7.0]))
    # 1/(2 * 4) * [(1-1)^2 + (3-1)^2 + (7-1)^2] = 40/8
    assert dist.upper_variance() == 5.0
    # 1/(2 * 4) * [(3-3)^2 + (7-3)^2] = 16/8
    assert dist.upper_variance(median="upper") == 2.0
    # By output index the second of (7, 0, 1, 3) is the median: [(0-0)^2 + (1-0)^2 + (3-0)^2] / 8
    shuffled = ReturnDist(jnp.array([7.0, 0.0, 1.0, 3.0]))
    assert shuffled.upper_variance("index") == 1.25
    assert shuffled.upper_variance("sorted") == 5.0


def test_upper_variance_takes_the_true_median_of_an_odd_number():
    # 1/(2 * 5) * [(3-3)^2 + (7-3)^2 + (8-3)^2] = 41/10, whichever of the two conventions is asked for.
    dist = ReturnDist(jnp.array([0.0, 1.0, 3.0, 7.0, 8.0]))
    np.testing.assert_allclose([dist.upper_variance(median=m) for m in ("lower", "upper")], [4.1, 4.1], rtol=1e-12)
    assert ReturnDist(jnp.array([4.0])).upper_variance() == 0


@given(law=laws())
def test_upper_variance_is_half_the_integral_over_the_upper_half(law: Law):
    # 1/2 * int_{1/2}^1 (Q(u) - Q(1/2))^2 du, exact on midpoints because the expansion has an even number of cells.
    every = law.expanded(2)
    half = len(every) // 2
    expected = 0.5 * ((every[half:] - every[half - 1]) ** 2).sum() / len(every)
    np.testing.assert_allclose(measure(law)["upper variance"]["sorted", "lower"], expected, **TOLERANCE)


@given(law=laws(equal=True))
def test_equal_weights_written_out_change_nothing(law: Law):
    short, long = measure(law), measure(Law(law.atoms, law.masses, False))
    assert short["sorted"].equal_mass
    assert not long["sorted"].equal_mass
    for one, other in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("weights", [None, np.ones(1)])
def test_a_single_atom_is_all_there_is(weights: np.ndarray | None):
    got = _measure((np.array([4.0]), weights), {"level": 0.3, "x": 4.0, "shift": 1.0, "scale": 0.5, "eta": 0.35})
    for name in ("mean", "min", "max", "quantile", "cvar", "squared", "squared by index"):
        np.testing.assert_allclose(got[name], 4.0, **TOLERANCE, err_msg=name)
    assert [float(got[name]) for name in ("variance", "std", "crossing", "cdf")] == [0, 0, 0, 1]
    assert set(map(float, got["upper variance"].values())) == {0.0}
    assert (got["levels"].tolist(), got["affine"].atoms.tolist()) == ([0.5], [3.0])


def test_crossing_rate_by_hand():
    # Neighbours out of order: 1 of 3; none; all of 3. Equal ones are in order.
    dist = ReturnDist(jnp.array([[1.0, 3.0, 2.0, 2.0], [1.0, 1.0, 2.0, 3.0], [4.0, 3.0, 2.0, 1.0]]))
    np.testing.assert_allclose(dist.crossing_rate(), [1 / 3, 0, 1], **TOLERANCE)
    assert ReturnDist(jnp.array([1.0])).crossing_rate() == 0


def test_atoms_without_mass_do_not_count():
    dist = ReturnDist(jnp.array([-9.0, 1.0, 2.0, 99.0]), jnp.array([0.0, 0.5, 0.5, 0.0]))
    assert (dist.min(), dist.max(), dist.mean(), dist.quantile(1.0), dist.cvar(0.1)) == (1, 2, 1.5, 2, 1)


def test_indexing_selects_one_action():
    atoms = jnp.array([[1.0, 2.0], [3.0, 5.0], [8.0, 0.0]])
    weights = jnp.array([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])
    picked = ReturnDist(atoms, weights)[1]
    assert picked.atoms.tolist() == [3, 5]
    assert picked.weights.tolist() == [0.25, 0.75]
    assert picked.levels.tolist() == [0.125, 0.625]
    assert jax.jit(lambda d, a: d[a].mean())(ReturnDist(atoms, weights), 2) == 8
    with pytest.raises(IndexError, match="reaches into the atoms"):
        picked[0]


def test_levels_and_thresholds_broadcast_against_leading_axes():
    single = ReturnDist(jnp.array([1.0, 2.0, 3.0, 4.0]))
    assert single.quantile(jnp.array([0.25, 0.26, 1.0])).tolist() == [1, 2, 4]
    assert single.cdf(jnp.array([0.0, 2.0, 9.0])).tolist() == [0, 0.5, 1]
    pair = ReturnDist(jnp.array([[1.0, 2.0], [30.0, 10.0]]))
    assert pair.quantile(0.5).tolist() == [1, 10]
    assert pair.quantile(jnp.array([1.0, 0.5])).tolist() == [2, 10]
    assert pair.cdf(jnp.array([1.0, 30.0])).tolist() == [0.5, 1]


def test_affine_of_one_distribution_by_many_rewards():
    dist = ReturnDist(jnp.array([4.0, 0.0]), jnp.array([0.25, 0.75]))
    moved = dist.affine(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0, 0.5]))
    assert moved.atoms.tolist() == [[1, 1], [6, 2], [5, 3]]
    assert moved.weights.shape == moved.levels.shape == (3, 2)
    assert moved.quantile(0.5).tolist() == [1, 2, 3]
    assert jax.eval_shape(lambda: moved.sample(jax.random.key(0), 7)).shape == (7, 3)


def test_samples_follow_the_weights():
    weights = np.array([[0.5, 0.0, 0.2, 0.3], [0.1, 0.6, 0.3, 0.0]])
    dist = ReturnDist(jnp.array([[3.0, 5.0, 1.0, 2.0], [30.0, 50.0, 10.0, 20.0]]), jnp.asarray(weights))
    draws = np.asarray(dist.sample(jax.random.key(1), 20_000))
    assert draws.shape == (20_000, 2)
    for column in range(2):
        atoms = np.asarray(dist.atoms[column])
        counts = (draws[:, column, None] == atoms).sum(0)
        assert counts.sum() == 20_000
        assert counts[weights[column] == 0].sum() == 0
        some = weights[column] > 0
        assert scipy.stats.chisquare(counts[some], 20_000 * weights[column][some]).pvalue > 1e-5
    joint = np.histogram2d(draws[:, 0], draws[:, 1], bins=[[0, 1.5, 2.5, 4], [0, 15, 40, 60]])[0]
    assert scipy.stats.chi2_contingency(joint).pvalue > 1e-5


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="scalar"):
        ReturnDist(1.0)
    with pytest.raises(ValueError, match="at least one atom"):
        ReturnDist(jnp.zeros((3, 0)))
    with pytest.raises(ValueError, match="sum to 1"):
        ReturnDist(jnp.zeros(2), jnp.array([0.5, 0.6]))
    with pytest.raises(ValueError, match="non-negative"):
        ReturnDist(jnp.zeros(2), jnp.array([1.5, -0.5]))
    with pytest.raises(ValueError, match="sum to 1"):
        ReturnDist(jnp.zeros((2, 2)), jnp.array([[0.5, 0.5], [0.5, 0.4]]))
    with pytest.raises(ValueError, match=r"[Ii]ncompatible"):
        ReturnDist(jnp.zeros(3), jnp.array([0.5, 0.5]))
    for eta in (0.0, -0.1, 1.5):
        with pytest.raises(ValueError, match="eta"):
            ReturnDist(jnp.zeros(2)).cvar(eta)


def test_whole_numbers_become_floats():
    dist = ReturnDist(jnp.array([1, 2]))
    assert dist.equal_mass
    assert jnp.issubdtype(dist.atoms.dtype, jnp.floating)
    assert dist.mean() == 1.5


def test_leading_axes_and_vmap_do_each_row_alone():
    generator = np.random.default_rng(0)
    arrays = generator.normal(size=(3, 5)), generator.dirichlet(np.ones(5), 3)
    at = {"level": 0.37, "x": 0.1, "shift": 1.0, "scale": 0.5, "eta": 0.4}
    rows = [_measure((arrays[0][k], arrays[1][k]), at) for k in range(3)]
    expected = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    mapped = jax.jit(jax.vmap(_measure, (0, None)))(arrays, at)
    for results in (_measure(arrays, at), mapped):
        for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(results), strict=True):
            np.testing.assert_allclose(other, one, **TOLERANCE)


def test_float32_stays_float32():
    dist = ReturnDist(np.array([[0.1, 0.7, 0.3]], np.float32), np.array([0.2, 0.3, 0.5], np.float32))
    numbers = jax.jit(lambda d: (d.mean(), d.variance(), d.quantile(0.5), d.cvar(0.5), d.upper_variance("sorted")))
    assert {x.dtype for x in numbers(dist)} == {jnp.dtype("float32")}
    # k/200 as a float32 is not k/200: the level must still find the k-th atom.
    many = np.random.default_rng(0).normal(size=200).astype(np.float32)
    levels = (np.arange(1, 201) / 200).astype(np.float32)
    for dist in (ReturnDist(many), ReturnDist(many, np.full(200, 1 / 200, np.float32))):
        np.testing.assert_array_equal(jax.jit(ReturnDist.quantile)(dist, levels), np.sort(many))
