"""How agents at points of the grid learn: from memories filled beforehand, by updates compiled once for all criteria.

What decides the compiled program of an update is the representation and the switches of the network. Which criterion
selects is a number, and what replay hands out is data, so hundreds of points are a few dozen programs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from agent_helpers import batch_losses, predict_each
from fork import GAMMA, STATES, SURE, Findings, Memory, clear_choice, findings
from grid_axes import AXES, Point

from tremble.agent import Agent, LearnerState
from tremble.core import Clock, Transition
from tremble.criteria import Criterion, make_criterion
from tremble.learn import bootstrap_target, learn
from tremble.networks import layers
from tremble.presets import make
from tremble.replay import Accumulator, NumpyReplay, ReplaySpec
from tremble.representations import Representation, make_representation
from tremble.settings import describe, override

STEPS, START = 1_200, 400
"""Of a run by the library's loops."""
TINY = {
    "batch_size": 32,
    "gamma": GAMMA,
    "learning_rate": 0.02,
    "adam_epsilon": 1e-8,
    "decay_updates": STEPS - START,
    "start_steps": START,
    "target_update_interval": 20,
    "memory_size": STEPS,
    "update_interval": 1,
    "epsilon_start": 0.6,
    "epsilon_end": 0.6,
    "priority_exponent": 0.3,
    "importance_start": 1.0,
}
"""Two thirds of the actions at random, so that both are known. Importance weights undo what priorities do; they are
divided by the largest of the batch, which leaves a bias that grows with the spread of priorities: so, a mild one."""
SMALL = {
    "n_quantiles": 16,
    "n_particles": 16,
    "n_fractions": 16,
    "n_atoms": 21,
    "n_online": 16,
    "n_target": 16,
    "n_choose": 128,
    "n_cosines": 32,
    "n_hidden": 64,
    "v_min": -1.0,
    "v_max": 3.0,
    "kappa": 0.05,
}
"""Sizes of representations. A small kappa: with 1 the loss itself pulls the quantiles of {0, 2} towards the middle.
Many levels where they are drawn to choose an action: from 16 draws of a coin, CPW prefers the wrong action two times in
five, and what is then learned is right for that agent, but not what is expected here."""
FAINT = {"n_bins": 16, "delta_0": 10.0, "c": 0.1}
"""Exploration by a criterion, faded long before the end."""


def keep_noise_apart() -> None:
    """Unoptimised programs would draw the noise of a noisy layer anew for every product it is a factor of."""
    draw = layers._factor
    layers._factor = lambda key, n: jax.lax.optimization_barrier(draw(key, n))  # type: ignore[assignment]


def fitting(module: Any, wanted: dict[str, Any]) -> Any:
    """The module with those of the settings that it has."""
    known = {path.rsplit(".", 1)[-1] for path in describe(module)}
    return override(module, {name: value for name, value in wanted.items() if name in known})


OF_MEANS = ("Expected", "Bootstrapped")
"""Representations whose atoms are estimates of the mean, not returns."""


def small(representation: Representation) -> Any:
    """A few atoms. With no quantiles to keep apart, the loss is the squared error: a small kappa makes medians."""
    made = fitting(representation, SMALL)
    return override(made, {"kappa": 10.0}) if type(made).__name__ in OF_MEANS else made


def distributional(agent: Agent) -> bool:
    """Whether there is more than a mean to be right about."""
    return type(agent.representation).__name__ not in OF_MEANS


def agent_of(point: Point, **changes: Any) -> Agent:
    """The agent at a point of the grid; observations are unit vectors, so that most heads need no layers below."""
    base, *monotone = point["representation"].split()
    representation = small(make_representation(base))
    if monotone:
        representation = override(representation, {"monotone": True})
    wanted = {name: point[name] for name in AXES if name not in ("representation", "criterion")}
    widths = (64,) if "n_cosines" in describe(representation) else ()
    return make(
        "qrdqn",
        "nchain",
        representation=representation,
        widths=widths,
        criterion=fitting(make_criterion(point["criterion"]), FAINT),
        **wanted,
        **TINY | changes,
    )


CHUNK, BATCH = 20, 32
LATE = Clock(10_000, 9_000, 0, 10_000)
"""When what explores by a criterion has faded."""
EPISODES = [case for case in itertools.product((0, 1), repeat=3) for _ in range(20)]
"""Action in the first step, action in the second, and the coin: every case equally often, and like beside like, so that
strata of the memory are strata of cases."""


class AnyCriterion(Criterion):
    """Several criteria, of which one is asked: by a traced number, so that they share a compiled program."""

    which: float
    criteria: tuple

    def draw(self, key):
        return tuple(criterion.draw(key) for criterion in self.criteria)

    def score(self, dist, noise, clock):
        ask = [lambda d, n, c=c, i=i: c.score(d, n[i], clock) for i, c in enumerate(self.criteria)]
        return jax.lax.switch(jnp.asarray(self.which).astype(int), ask, dist, noise)


def strong(tree):
    """The arrays with types that no number in Python gave them: a weak type is another type, and another program."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


@partial(jax.jit, static_argnums=2)
def start(agent, key, shape=(2,)):
    return strong(agent.init(key, shape, 2))


# Made many times over, so worth some optimising where everything else is compiled quickly.
@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})
def updates(agent, state, batches, key):
    """As many updates as there are batches, and their losses."""

    def one(state, inputs):
        batch, key = inputs
        state, info = learn(agent, state, batch, agent.draw_learn(key), LATE, key if agent.random_predictions else None)
        return state, (info.loss, info.losses)

    state, losses = jax.lax.scan(one, state, (batches, jax.random.split(key, batches.reward_t.shape[0])))
    return strong(state), losses


@jax.jit
def loss_on(agent, params, state, batches):
    """The mean loss of some parameters on the targets of a state, which move while one learns."""

    def one(inputs):
        batch, key = inputs
        online_key, target_key = jax.random.split(key) if agent.random_predictions else (None, None)
        target, _ = bootstrap_target(agent, state, batch, agent.draw_learn(key), LATE, target_key)
        return (batch.weight * batch_losses(agent, params, batch, target, online_key)[0]).mean()

    return jax.lax.map(one, (batches, jax.random.split(jax.random.key(0), batches.reward_t.shape[0]))).mean()


predict = jax.jit(predict_each)


def filled(spec: ReplaySpec) -> NumpyReplay:
    """A memory of episodes on the fork."""
    obs, zero = jnp.asarray(STATES[0]), jnp.zeros(())
    example = jax.tree.map(np.asarray, Transition(obs, jnp.zeros((), jnp.int32), zero, zero, obs))
    replay, steps = NumpyReplay(2 * len(EPISODES), example, spec), Accumulator(spec.n_step, GAMMA, 1)
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


def agent_at(point: Point) -> Agent:
    """The agent at a point. Without layers below the head a parameter is a number of the answer, and may move fast."""
    if agent_of(point).network.widths:
        # With steps of 0.02, or layers of 32, all units die for some levels, whose atoms then say nothing.
        pace = {"learning_rate": 0.005, "decay_updates": 600}
    elif point["representation"] == "quantile monotone":  # increments that add up are slower to find than atoms
        pace = {"learning_rate": 0.1, "decay_updates": 600}
    else:  # noise in the weights has to average out, and so has the noise of unequal weights of samples
        pace = {"learning_rate": 0.1, "decay_updates": 400 if point["noisy"] or point["prioritised"] else 200}
    return agent_of(point, batch_size=BATCH, **pace)


@dataclass(frozen=True)
class Judged:
    """What came of a point."""

    point: Point
    findings: Findings
    faults: list[str]
    seconds: float


def judge(points: Sequence[Point]) -> Iterator[Judged]:
    """Train the agents of points that share a program, one after the other."""
    agents = [agent_at(point) for point in points]
    criteria = tuple(dict.fromkeys(agent.target_criterion for agent in agents))
    # Points that differ in how they act only learn the same from a given memory.
    lessons: dict[Any, tuple[NumpyReplay, Any]] = {}
    for number, (agent, point) in enumerate(zip(agents, points, strict=True)):
        begin = time.process_time()
        found, faults = judged(agent, criteria, point, number, lessons)
        yield Judged(point, found, faults, time.process_time() - begin)


def judged(
    real: Agent, criteria: tuple[Any, ...], point: Point, seed: int, lessons: dict[Any, tuple[NumpyReplay, Any]]
) -> tuple[Findings, list[str]]:
    """One point; ``criteria`` are those of all points that share its program."""
    # Where a criterion applies decides which one the update asks, and replay what it is handed: the rest is shared.
    asked = float(criteria.index(real.target_criterion))
    shared = replace(real, criterion=AnyCriterion(asked, criteria), criterion_for="both", replay=ReplaySpec())
    shared = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), shared)
    lesson = (asked, point["prioritised"], point["n_step"])
    if lesson not in lessons:
        replay = filled(real.replay)
        lessons[lesson] = (replay, trained(shared, replay, real.replay, seed))
    replay, (first, state, batches) = lessons[lesson]
    held = replay.state()
    memory = Memory(held["obs_tm1"].argmax(-1), held["action_tm1"], held["reward_t"], held["discount_t"])
    distributional = point["representation"] != "expected"
    dist = predict(shared, state.params, jnp.asarray(STATES))
    before, after = (float(loss_on(shared, params, state, batches)) for params in (first.params, state.params))
    choice = clear_choice(real.target_criterion, distributional, LATE, memory)
    found = findings(dist, memory, choice, before, after, real.optimiser.decay_updates)
    faults = found.faults(distributional)
    if point["criterion_for"] == "behaviour":  # elsewhere the value of s0 has shown that the criterion was heard
        acts = real.behaviour_criterion
        scores = acts.score(dist[1], acts.draw(jax.random.key(seed)), LATE)
        if int(jnp.argmax(scores)) != clear_choice(acts, distributional, LATE, memory):
            faults.append("behaviour does not act by the criterion")
    return found, faults
