"""Sources of the spread of returns: variance components of known flights, and the design on the real lander."""

import numpy as np
import pytest

from tremble.studies.lunarlander.noise import Flights, fly, random_policy

pytest.importorskip("Box2D")


def synthetic(rng, starts, repeats, start_std, engine_std):
    returns = start_std * rng.normal(size=(starts, 1)) + engine_std * rng.normal(size=(starts, repeats))
    return Flights(returns, np.zeros_like(returns))


@pytest.mark.parametrize(("start_std", "engine_std"), [(30.0, 40.0), (0.0, 10.0), (10.0, 0.0)])
def test_components_find_the_variances_they_were_made_with(start_std, engine_std):
    rng = np.random.default_rng(1)
    estimates = np.array([synthetic(rng, 30, 10, start_std, engine_std).components() for _ in range(400)])
    between, within = estimates.mean(0)
    assert within == pytest.approx(engine_std**2, rel=0.03, abs=1e-9)
    # Negative estimates are cut to 0, which shows where the start has no effect.
    assert between == pytest.approx(start_std**2, rel=0.05, abs=0.03 * engine_std**2)


def test_the_share_of_the_start_lies_in_its_interval_and_knows_the_extremes():
    rng = np.random.default_rng(2)
    share, low, high = synthetic(rng, 30, 10, 30.0, 30.0).start_share()
    assert low < share < high and low < 0.5 < high
    assert synthetic(rng, 30, 10, 10.0, 0.0).start_share()[0] == 1.0
    assert Flights(np.zeros((3, 2)), np.zeros((3, 2))).start_share()[0] == 0.0


def test_flights_from_one_start_differ_by_the_engines_alone():
    """Without engines the repeats are one and the same flight, and starts differ; with them the repeats differ too."""
    idle = fly(lambda obs: np.zeros(len(obs), int), "LunarLander-v3", starts=3, repeats=2)
    assert (idle.returns[:, 0] == idle.returns[:, 1]).all() and len(np.unique(idle.returns)) == 3
    assert (idle.ends == -100).all()
    busy = fly(random_policy(4), "LunarLander-v3", starts=2, repeats=2)
    main_engine = fly(lambda obs: np.full(len(obs), 2), "LunarLander-v3", starts=2, repeats=2)
    for flights in (busy, main_engine):
        assert (flights.returns[:, 0] != flights.returns[:, 1]).all()
    np.testing.assert_allclose(busy.without_ends, busy.returns + 100)
