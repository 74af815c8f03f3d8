"""Parts go together: every pair of values of the grid's axes occurs in an agent that is trained and judged.

`tests/grid.py` trains far more of them, in the same way.
"""

from __future__ import annotations

import itertools

import grid
import jax
import pytest
from grid_axes import AXES, PROGRAM, all_points, covering, name_of, pairs, product, some
from grid_learning import agent_of, judge

from tremble.networks import layers

POINTS = some()
PROGRAMS = list(dict.fromkeys(tuple(point[axis] for axis in PROGRAM) for point in POINTS))

# The covering sets ----------------------------------------------------------------------------------------------------


def covered(points):
    return {(a, p[a], b, p[b]) for p in points for a, b in itertools.combinations(AXES, 2)}


def test_every_pair_of_values_is_there():
    assert set(pairs(AXES)) <= covered(POINTS)
    assert all(set(point) == set(AXES) for point in POINTS)
    least = len(AXES["representation"]) * len(AXES["criterion"])
    assert least <= len(POINTS) <= least + 10, "no set can have fewer"
    assert len(PROGRAMS) <= 2 * len(AXES["representation"]) + 2


def test_the_whole_grid_has_every_pair_for_every_representation_and_criterion():
    others = {axis: values for axis, values in AXES.items() if axis not in ("representation", "criterion")}
    groups: dict = {}
    for point in all_points():
        groups.setdefault((point["representation"], point["criterion"]), []).append(point)
    assert len(groups) == len(AXES["representation"]) * len(AXES["criterion"])
    for points in groups.values():
        assert set(pairs(others)) <= covered(points)


def test_covering_by_brute_force():
    """Three switches need four points; with cost, the dear value is taken no more often than it must be."""
    axes = {name: (False, True) for name in "abc"}
    assert len(covering(axes)) == min(
        len(some_points)
        for n in range(1, 6)
        for some_points in itertools.combinations(product(axes), n)
        if set(pairs(axes)) <= {(x, p[x], y, p[y]) for p in some_points for x, y in itertools.combinations(axes, 2)}
    )
    with pytest.raises(ValueError, match="no candidate has"):
        covering(axes, [dict.fromkeys("abc", False)])


# Learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: name_of(dict(zip(PROGRAM, p, strict=True))))
def test_every_pair_learns(program, monkeypatch):
    """Updates, loss, means and distributions as `fork.Findings` wants them; behaviour acts by its criterion."""
    plain = layers._factor
    monkeypatch.setattr(layers, "_factor", lambda key, n: jax.lax.optimization_barrier(plain(key, n)))
    points = [point for point in POINTS if tuple(point[axis] for axis in PROGRAM) == program]
    faults = {name_of(result.point): result for result in judge(points) if result.faults}
    assert not faults


@pytest.mark.long
def test_the_library_s_loop_learns_a_point_of_the_whole_grid():
    point = dict(zip(AXES, ("quantile", "cvar", "both", True, False, False, True, 3), strict=True))
    assert not grid.measure(agent_of(point)).faults(True)


@pytest.mark.long
@pytest.mark.parametrize("preset", grid.REMEMBERING)
def test_every_preset_learns(preset):
    row = grid.run_preset(preset)
    assert not row["faults"], row
