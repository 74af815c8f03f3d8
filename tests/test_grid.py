"""Parts go together: every pair of values of the grid's axes occurs in an agent that is trained and judged.

`tests/grid.py` trains far more of them, by the library's loops; here the same update is compiled once for all criteria,
and learns from memories that were filled beforehand.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import equinox as eqx
import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fork import GAMMA, STATES, SURE, Memory, clear_choice, findings
from grid_axes import AXES, PROGRAM, all_points, covering, name_of, pairs, product, some

from tremble.core import Clock, Transition
from tremble.learn import LearnerState, learn, predict_each
from tremble.networks import noisy
from tremble.replay import Accumulator, HostReplay, ReplaySpec

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

CHUNK, BATCH = 20, 32
LATE = Clock(10_000, 9_000, 0, 10_000)
"""When what explores by a criterion has faded."""
EPISODES = [case for case in itertools.product((0, 1), repeat=3) for _ in range(20)]
"""Action in the first step, action in the second, and the coin: every case equally often, and like beside like, so that
strata of the memory are strata of cases."""


class AnyCriterion(eqx.Module):
    """Several criteria, of which one is asked: by a traced number, so that they share a compiled program."""

    which: float
    criteria: tuple

    def draw(self, key):
        return tuple(criterion.draw(key) for criterion in self.criteria)

    def score(self, dist, noise, clock):
        ask = [lambda d, n, c=c, i=i: c.score(d, n[i], clock) for i, c in enumerate(self.criteria)]
        return jax.lax.switch(jnp.asarray(self.which).astype(int), ask, dist, noise)

    def gauges(self, noise, clock):
        return {}


@partial(jax.jit, static_argnums=2)
def start(agent, key, shape=(2,)):
    return agent.init(key, shape, 2)


@jax.jit
def updates(agent, state, batches, key):
    """As many updates as there are batches, and their losses."""

    def one(state, inputs):
        batch, key = inputs
        state, info = learn(agent, state, batch, agent.draw_learn(key), LATE, key if agent.random_predictions else None)
        return state, (info.loss, info.losses)

    return jax.lax.scan(one, state, (batches, jax.random.split(key, batches.reward_t.shape[0])))


predict = jax.jit(predict_each)


def filled(spec: ReplaySpec) -> HostReplay:
    """A memory of episodes on the fork."""
    obs, zero = jnp.asarray(STATES[0]), jnp.zeros(())
    example = jax.tree.map(np.asarray, Transition(obs, jnp.zeros((), jnp.int32), zero, zero, obs))
    replay, steps = HostReplay(2 * len(EPISODES), example, spec), Accumulator(spec.n_step, GAMMA, 1)
    for first, second, coin in EPISODES:
        items = steps.add(0, STATES[0], first, 0.0, False, False, STATES[1])
        items += steps.add(0, STATES[1], second, 2.0 * coin if second == 0 else SURE, True, False, STATES[1])
        for item in items:
            replay.insert(item)
    return replay


def even_bits(generator, prioritised, size):
    """Random bits that sample evenly: in strata of priority, or every item once before any is taken again.

    Agents sample with replacement; here that would only be noise in what is learned from few updates.
    """
    if prioritised:
        strata = (np.arange(BATCH) + generator.random((CHUNK, BATCH))) / BATCH
        return (strata * 2**32).astype(np.uint32)
    rounds = -(-CHUNK * BATCH // size)
    order = np.concatenate([generator.permutation(size) for _ in range(rounds)])
    return order[: CHUNK * BATCH].reshape(CHUNK, BATCH).astype(np.uint32)


def trained(agent, replay, spec, seed):
    """Parameters before and after, and the last batches; losses become priorities chunk by chunk."""
    generator = np.random.default_rng(seed)
    state = first = start(agent, jax.random.key(seed))
    for number in range(agent.optimiser.decay_updates // CHUNK):
        bits = even_bits(generator, spec.prioritised, replay.size)
        drawn = [replay.sample(row, spec.importance_exponent(0)) for row in bits]
        batches = jax.tree.map(lambda *x: np.stack(x), *(batch for batch, _ in drawn))
        delayed = LearnerState(state.params, state.params, state.opt_state)
        state, (loss, losses) = updates(agent, delayed, batches, jax.random.key(number))
        assert np.isfinite(loss).all()
        if spec.prioritised:
            for (_, slots), row in zip(drawn, np.asarray(losses), strict=True):
                replay.update_priorities(slots, row)
    return first, state, batches


def agent_at(point):
    """The agent at a point. Without layers below the head a parameter is a number of the answer, and may move fast."""
    if grid.agent_of(point).network.widths:
        pace = {"learning_rate": 0.02, "decay_updates": 1200}
    else:  # increments that add up are slower to find than atoms
        pace = {"learning_rate": 0.1, "decay_updates": 600 if point["representation"] == "quantile monotone" else 200}
    return grid.agent_of(point, batch_size=BATCH, **pace)


def check(real, criteria, point, seed):
    """One row of the covering set; ``criteria`` are those of all rows that share its program."""
    # Where a criterion applies decides which one the update asks, and replay what it is handed: the rest is shared.
    asked = float(criteria.index(real.target_criterion))
    shared = replace(real, criterion=AnyCriterion(asked, criteria), criterion_for="both", replay=ReplaySpec())
    shared = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), shared)
    replay = filled(real.replay)
    first, state, batches = trained(shared, replay, real.replay, seed)
    held = replay.state()
    memory = Memory(held["obs_tm1"].argmax(-1), held["action_tm1"], held["reward_t"], held["discount_t"])
    distributional = point["representation"] != "expected"
    dist = predict(shared, state.params, jnp.asarray(STATES))
    # On the same targets: they move while one learns.
    states = [LearnerState(p, state.target_params, state.opt_state) for p in (first.params, state.params)]
    before, after = (float(updates(shared, s, batches, jax.random.key(0))[1][0][0]) for s in states)
    choice = clear_choice(real.target_criterion, distributional, LATE, memory)
    found = findings(dist, memory, choice, before, after, real.optimiser.decay_updates)
    assert not found.faults(distributional), (name_of(point), found)
    if point["criterion_for"] == "behaviour":  # elsewhere the value of s0 has shown that the criterion was heard
        acts = real.behaviour_criterion
        scores = acts.score(dist[1], acts.draw(jax.random.key(seed)), LATE)
        assert int(jnp.argmax(scores)) == clear_choice(acts, distributional, LATE, memory), name_of(point)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: name_of(dict(zip(PROGRAM, p, strict=True))))
def test_every_pair_learns(program, monkeypatch):
    """Updates, loss, means and distributions as `fork.Findings` wants them; behaviour acts by its criterion."""
    plain = noisy._factor
    monkeypatch.setattr(noisy, "_factor", lambda key, n: jax.lax.optimization_barrier(plain(key, n)))
    points = [point for point in POINTS if tuple(point[axis] for axis in PROGRAM) == program]
    agents = [agent_at(point) for point in points]
    criteria = tuple(dict.fromkeys(agent.target_criterion for agent in agents))
    for number, (agent, point) in enumerate(zip(agents, points, strict=True)):
        check(agent, criteria, point, number)


@pytest.mark.slow
def test_the_library_s_loop_learns_a_point_of_the_whole_grid():
    point = dict(zip(AXES, ("quantile", "cvar", "both", True, False, False, True, 3), strict=True))
    assert not grid.measure(grid.agent_of(point)).faults(True)


@pytest.mark.long
@pytest.mark.parametrize("preset", grid.PRESETS)
def test_every_preset_learns(preset):
    row = grid.run({"preset": preset})
    assert not row["faults"], row
