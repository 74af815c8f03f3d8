"""The quantile Huber loss against its definition, automatic differentiation, rlax, and arithmetic by hand."""

from __future__ import annotations

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from jaxtyping import TypeCheckError

from tremble.losses import huber, quantile_huber

KAPPAS = (0.0, 0.5, 1.0, 2.5)
VARIANTS = {
    "plain": lambda f: f,
    "jitted": jax.jit,
    "vmapped": lambda f: (
        lambda *a: jax.tree.map(lambda x: x[1], jax.jit(jax.vmap(f))(*(jnp.stack([x - 1, x]) for x in a)))
    ),
}


def by_definition(predicted: np.ndarray, target: np.ndarray, levels: np.ndarray, kappa: float) -> float:
    """The double sum, term by term."""
    total = 0.0
    for theta, tau in zip(predicted, levels, strict=True):
        for y in target:
            u = y - theta
            if kappa == 0:
                value = abs(u)
            elif abs(u) <= kappa:
                value = u**2 / 2 / kappa
            else:
                value = abs(u) - kappa / 2
            total += abs(tau - (u < 0)) * value / len(target)
    return total


def dense(predicted: jax.Array, target: jax.Array, levels: jax.Array, kappa: float) -> jax.Array:
    """The N x M matrix, for automatic differentiation."""
    u = target[None, :] - predicted[:, None]
    size = jnp.abs(u)
    if kappa > 0:
        size = jnp.where(size <= kappa, u**2 / (2 * kappa), size - kappa / 2)
    below = jax.lax.stop_gradient((u < 0).astype(u.dtype))
    return (jnp.where(below == 1, 1 - levels[:, None], levels[:, None]) * size).sum(0).mean()


def example(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng([seed, n, m])
    return 2 * generator.normal(size=n), 2 * generator.normal(size=m) + 0.3, generator.uniform(size=n)


@pytest.mark.parametrize(
    ("n", "m", "kappa"),
    [
        (1, 1, 1.0),
        (5, 3, 0.0),
        (5, 3, 0.5),
        (9, 8, 2.5),
        (8, 13, 0.0),
        (8, 13, 1.0),
        (19, 1, 1.0),
        (35, 20, 0.5),
        (3, 16, 1.0),
        (2, 300, 1.0),
    ],
)
def test_value_and_all_gradients(n: int, m: int, kappa: float):
    # Target atoms are taken in blocks of eight (predicted ones for the target's gradient): none and a rest, one and no
    # rest, one and a rest, several and a rest.
    arrays = example(n, m)
    with jax.enable_x64(True):
        ours = jax.value_and_grad(partial(quantile_huber, kappa=kappa), argnums=(0, 1, 2))
        value, gradients = jax.jit(ours)(*map(jnp.asarray, arrays))
        expected = jax.jit(jax.grad(partial(dense, kappa=kappa), argnums=(0, 1, 2)))(*map(jnp.asarray, arrays))
        np.testing.assert_allclose(value, by_definition(*arrays, kappa), rtol=1e-12)
        for got, want in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kappa", (0.0, 2.5))
def test_float32_is_accurate(kappa: float):
    arrays = example(20, 12, seed=1)
    ours = jax.jit(jax.value_and_grad(partial(quantile_huber, kappa=kappa), argnums=(0, 1, 2)))
    value, gradients = ours(*(jnp.asarray(a, jnp.float32) for a in arrays))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, by_definition(*arrays, kappa), rtol=1e-5)
    with jax.enable_x64(True):
        expected = jax.jit(jax.grad(partial(dense, kappa=kappa), argnums=(0, 1, 2)))(*map(jnp.asarray, arrays))
    for got, want in zip(gradients, expected, strict=True):
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_float32_is_accurate_for_many_levels_and_large_returns():
    """The weight of an error is made of 1 and 2 tau - 1, which nearly cancel for the lowest and the highest level."""
    generator = np.random.default_rng(2)
    arrays = [
        1000 + 3 * generator.normal(size=200),
        1000 + 3 * generator.normal(size=200),
        (np.arange(200) + 0.5) / 200,
    ]
    single = [a.astype(np.float32) for a in arrays]
    got = jax.jit(jax.grad(quantile_huber))(*map(jnp.asarray, single))
    with jax.enable_x64(True):
        want = jax.grad(partial(dense, kappa=1.0))(*(jnp.asarray(a, jnp.float64) for a in single))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kappa", (1.5,))
def test_gradients_are_slopes_of_the_definition(kappa: float):
    # Independent of any automatic differentiation: central differences of the double sum in float64.
    arrays, step = example(4, 5), 1e-6
    with jax.enable_x64(True):
        gradients = jax.jit(jax.grad(partial(quantile_huber, kappa=kappa), argnums=(0, 1, 2)))(*arrays)
    for which, gradient in enumerate(gradients):
        for k in range(len(arrays[which])):
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][k] += sign * step
                ends.append(by_definition(*moved, kappa))
            np.testing.assert_allclose(gradient[k], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_agrees_with_rlax(kappa: float):
    # rlax leaves out the division by kappa; the two are the same at 0 and at 1.
    predicted, target, levels = (jnp.asarray(a, jnp.float32) for a in example(12, 7, seed=2))
    factor = kappa if kappa > 0 else 1.0
    theirs = jax.jit(jax.value_and_grad(lambda p: rlax.quantile_regression_loss(p, levels, target, kappa)))(predicted)
    ours = jax.jit(jax.value_and_grad(lambda p: factor * quantile_huber(p, target, levels, kappa)))(predicted)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_by_hand(variant: str):
    # u = target_j - predicted_i:      i=1:  0.5  3      i=2: -0.5  2
    # |level_i - 1{u < 0}|:                  1/4  1/4          1/4  3/4
    arrays = (jnp.array([0.0, 1.0]), jnp.array([0.5, 3.0]), jnp.array([0.25, 0.75]))

    def run(kappa: float) -> tuple[float, tuple[list[float], ...]]:
        f = jax.value_and_grad(partial(quantile_huber, kappa=kappa), argnums=(0, 1, 2))
        value, gradients = VARIANTS[variant](f)(*arrays)
        return float(value), tuple(g.tolist() for g in gradients)

    # kappa 1, H(u):                         1/8  5/2          1/8  3/2
    # loss: (1/4 * 1/8 + 1/4 * 5/2)/2 + (1/4 * 1/8 + 3/4 * 3/2)/2 = 0.328125 + 0.578125
    # d predicted: -(1/4 * 1/2 + 1/4 * 1)/2, -(1/4 * -1/2 + 3/4 * 1)/2
    # d target: (1/4 * 1/2 + 1/4 * -1/2)/2, (1/4 * 1 + 3/4 * 1)/2;  d levels: (1/8 + 5/2)/2, (3/2 - 1/8)/2
    assert run(1.0) == (0.90625, ([-0.1875, -0.3125], [0.0, 0.5], [1.3125, 0.6875]))
    if variant == "plain":
        return  # each operation is compiled on its own: once is enough
    # kappa 0, |u|: (1/4 * 1/2 + 1/4 * 3)/2 + (1/4 * 1/2 + 3/4 * 2)/2 = 0.4375 + 0.8125
    # d predicted: -(1/4 + 1/4)/2, -(-1/4 + 3/4)/2;  d target: (1/4 - 1/4)/2, (1/4 + 3/4)/2
    # d levels: (1/2 + 3)/2, (2 - 1/2)/2
    assert run(0.0) == (1.25, ([-0.25, -0.25], [0.0, 0.5], [1.75, 0.75]))
    # kappa 2, H(u)/2:                      1/16  2           1/16  1   (u = 2 is where the two branches meet)
    # loss: (1/4 * 1/16 + 1/4 * 2)/2 + (1/4 * 1/16 + 3/4 * 1)/2 = 0.2578125 + 0.3828125
    # slopes clip(u)/2: 1/4, 1, -1/4, 1: d predicted: -(1/16 + 1/4)/2, -(-1/16 + 3/4)/2
    assert run(2.0) == (0.640625, ([-0.15625, -0.34375], [0.0, 0.5], [1.03125, 0.46875]))


def test_a_tie_has_no_slope():
    # u = 0: no value, and zero taken from the interval of slopes that kappa 0 offers.
    for kappa in (0.0, 1.0):
        f = jax.jit(jax.value_and_grad(partial(quantile_huber, kappa=kappa), argnums=(0, 1, 2)))
        value, gradients = f(jnp.array([2.0]), jnp.array([2.0]), jnp.array([0.3]))
        assert float(value) == 0
        assert [g.tolist() for g in gradients] == [[0.0]] * 3


@pytest.mark.parametrize("kappa", (0.0, 1.0))
def test_what_is_not_a_number_is_not_hidden(kappa: float):
    predicted, target, levels = map(jnp.asarray, example(5, 11))
    slopes = jax.grad(partial(quantile_huber, kappa=kappa), (0, 1, 2))
    for broken in (slopes(predicted, target.at[3].set(jnp.nan), levels), slopes(predicted + jnp.nan, target, levels)):
        assert np.isnan(broken[0]).all() and np.isnan(broken[2]).all()
        assert np.isnan(broken[1]).any()
    assert np.isnan(quantile_huber(predicted, target.at[3].set(jnp.nan), levels, kappa))


def test_gradient_scales_with_the_cotangent():
    predicted, target, levels = (jnp.asarray(a, jnp.float32) for a in example(6, 4))
    once = jax.jit(jax.grad(quantile_huber, argnums=(0, 1, 2)))(predicted, target, levels)
    scaled = jax.jit(jax.grad(lambda *a: -3 * quantile_huber(*a), argnums=(0, 1, 2)))(predicted, target, levels)
    for gradient, other in zip(once, scaled, strict=True):
        np.testing.assert_allclose(other, -3 * gradient, rtol=1e-6)


def test_minimum_is_at_the_quantiles():
    # With kappa 0 the loss is least where P(target < theta) <= level <= P(target <= theta).
    target = jnp.arange(1.0, 11.0)
    levels = jnp.array([0.05, 0.55, 0.95])
    gradient = jax.jit(jax.grad(partial(quantile_huber, kappa=0.0)))
    at = jnp.array([1.0, 6.0, 10.0])
    assert np.all(gradient(at - 0.5, target, levels) < 0)
    assert np.all(gradient(at + 0.5, target, levels) > 0)


@pytest.mark.parametrize(("n", "m", "kappa"), ((5, 3, 1.5), (8, 13, 0.0)))
def test_accelerator_form_equals_cpu_form(n: int, m: int, kappa: float, monkeypatch: pytest.MonkeyPatch):
    arrays = tuple(map(np.float32, example(n, m, seed=3)))
    taken = []

    def run(form: str) -> list[np.ndarray]:
        def choose(*operands: jax.Array, **forms: object) -> object:
            taken.append(form)
            return forms[form](*operands)

        monkeypatch.setattr(jax.lax, "platform_dependent", choose)
        f = jax.value_and_grad(partial(quantile_huber, kappa=kappa), argnums=(0, 1, 2))
        return jax.tree.leaves(jax.jit(f)(*map(jnp.asarray, arrays)))

    for looped, one_go in zip(run("cpu"), run("default"), strict=True):
        np.testing.assert_allclose(looped, one_go, rtol=1e-5, atol=1e-6)
    assert set(taken) == {"cpu", "default"}


def test_bad_input_is_refused():
    # Users run without the type checks of the tests, so the function's own messages are what they see.
    unchecked = inspect.unwrap(quantile_huber)
    three, batch = jnp.zeros(3), jnp.zeros((2, 3))
    with pytest.raises(ValueError, match=r"one transition.*jax.vmap"):
        unchecked(batch, batch, batch)
    with pytest.raises(ValueError, match="one transition"):
        unchecked(three, three, jnp.zeros(4))
    with pytest.raises(ValueError, match="one transition"):
        unchecked(three, jnp.zeros(()), three)
    for kappa in (-0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="kappa"):
            unchecked(three, three, three, kappa)
    with pytest.raises(TypeError, match="Python number"):
        jax.jit(unchecked)(three, three, three, 1.0)
    with pytest.raises(TypeCheckError):
        quantile_huber(three, three, jnp.zeros(4))
    assert unchecked(three, three + 1, three, 1) == unchecked(three, three + 1, three, 1.0)


def test_huber():
    # kappa 2: u^2/2 up to 2, then 2 (|u| - 1).
    u = jnp.array([-5.0, -2.0, -1.0, 0.0, 0.5, 2.0, 3.0])
    assert huber(u, 2.0).tolist() == [8.0, 2.0, 0.5, 0.0, 0.125, 2.0, 4.0]
    assert jax.grad(lambda x: huber(x, 2.0).sum())(u).tolist() == [-2.0, -2.0, -1.0, 0.0, 0.5, 2.0, 2.0]
    assert huber(jnp.array(3.0)) == 2.5
