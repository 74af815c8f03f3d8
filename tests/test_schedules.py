from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tremble import schedules
from tremble.core import Clock
from tremble.schedules import Schedule


def test_power_by_hand():
    # 500 * t^-1.001: all of it at first, 500 / 2^1.001 at t = 2; a summable tail.
    np.testing.assert_allclose(schedules.power(1, 500.0), 500.0)
    np.testing.assert_allclose(schedules.power(jnp.array([2.0, 1e4]), 500.0), [249.826747, 0.0495416], rtol=1e-5)
    np.testing.assert_allclose(schedules.power(4, 8.0, 1.0), 0.5, rtol=1e-6)


def test_sqrt_log_by_hand():
    # Nothing at t = 1, sqrt(1/e) at its top t = e, less on both sides of it.
    assert schedules.sqrt_log(1, 50.0) == 0
    np.testing.assert_allclose(schedules.sqrt_log(np.e, 50.0), 50 * np.exp(-0.5), rtol=1e-6)
    np.testing.assert_allclose(schedules.sqrt_log(100, 2.0), 2 * np.sqrt(np.log(100) / 100), rtol=1e-6)
    top = schedules.sqrt_log(jnp.array([2.6, np.e, 2.85]), 1.0)
    assert top[1] > top[0]
    assert top[1] > top[2]


def test_linear_goes_from_start_to_end_and_stays():
    t = jnp.array([1.0, 2.0, 6.0, 11.0, 12.0, 1e6])
    np.testing.assert_allclose(schedules.linear(t, 1.0, 0.1, 10.0), [1.0, 0.91, 0.55, 0.1, 0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(schedules.linear(2, 1.0, 0.25, 0.0), 0.25)


def test_constant():
    np.testing.assert_array_equal(schedules.constant(jnp.array([1.0, 5.0, 9.0]), 0.3), np.float32([0.3] * 3))


def test_a_schedule_reads_its_kind_unit_and_origin():
    clock = Clock(transitions=99, updates=49, episodes=9, frames=399, start_transitions=50)
    np.testing.assert_array_equal(Schedule("power", 0.5)(2.0, clock), schedules.power(100.0, 2.0, 0.5))
    np.testing.assert_array_equal(Schedule("sqrt_log")(2.0, clock), schedules.sqrt_log(100.0, 2.0))
    np.testing.assert_array_equal(Schedule("const")(2.0, clock), 2.0)
    for unit, t in {"transitions": 100.0, "updates": 50.0, "episodes": 10.0, "frames": 400.0}.items():
        np.testing.assert_array_equal(Schedule("power", 1.0, unit)(2.0, clock), schedules.power(t, 2.0, 1.0))
    from_start = Schedule("power", 1.0, "transitions", "learning_start")
    np.testing.assert_array_equal(from_start(2.0, clock), schedules.power(50.0, 2.0, 1.0))


def test_scales_may_be_traced():
    scales, clock = jnp.array([1.0, 2.0, 3.0]), Clock(6, 6, 6, 6)
    for kind in ("power", "const", "sqrt_log"):
        mapped = jax.vmap(lambda s, kind=kind: Schedule(kind)(s, clock))(scales)
        np.testing.assert_allclose(mapped, Schedule(kind)(1.0, clock) * scales, rtol=1e-6)


def test_clock_counts_from_one_in_every_unit():
    clock = Clock(transitions=99, updates=49, episodes=9, frames=399, start_transitions=50)
    assert [float(clock.time(unit)) for unit in ("transitions", "updates", "episodes", "frames")] == [100, 50, 10, 400]
    assert float(clock.time("transitions", "learning_start")) == 50
    # Updates happen only once learning has started; the other two count from the start of the run.
    assert [float(clock.time(u, "learning_start")) for u in ("updates", "episodes", "frames")] == [50, 10, 400]
    early = Clock(transitions=20, updates=0, episodes=0, frames=0, start_transitions=50)
    assert float(early.time("transitions", "learning_start")) == 1
    assert float(Clock(0, 0, 0, 0).time("transitions")) == 1
