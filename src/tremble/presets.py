"""Named agents as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tremble.agent import Agent
from tremble.choosers import Chooser
from tremble.criteria import Criterion, Mean, Optimism, Perturbed, RandomAtom, WorstCase, make_criterion
from tremble.hyperparameters import Hyperparameters, find_hyperparameters
from tremble.learning_schedule import LearningSchedule
from tremble.networks import ConvSpec, MlpSpec
from tremble.optimisers import Adam, RMSProp
from tremble.replay import ReplaySpec
from tremble.representations import (
    Bootstrapped,
    Categorical,
    Expected,
    FullyParameterised,
    Implicit,
    NonDecreasing,
    Particles,
    Quantile,
    QuantileOptions,
    Representation,
    make_representation,
)
from tremble.settings import SettingsError, nearest, override


def _epsilon_greedy(table: Hyperparameters) -> Chooser:
    return Chooser(
        table.epsilon_start,
        table.epsilon_end,
        float(table.epsilon_decay_steps),
        epsilon_origin=table.epsilon_origin,
    )


def _network(table: Hyperparameters) -> MlpSpec | ConvSpec:
    widths = tuple(table.widths)
    return MlpSpec(widths) if table.network is None else dataclasses.replace(table.network, widths=widths)


def _agent(table: Hyperparameters, **parts: Any) -> Agent:
    """The settings all agents of a table share."""
    agent = Agent(
        **({"representation": Quantile(table.n_quantiles, table.kappa)} | parts),
        network=_network(table),
        optimiser=Adam(table.learning_rate, 0.01 / table.batch_size),
        gamma=table.gamma,
        learning=LearningSchedule(
            batch_size=table.batch_size,
            start_steps=table.start_steps,
            update_interval=table.update_interval,
            target_update_interval=table.target_update_interval,
        ),
        memory_size=table.memory_size,
    )
    return override(agent, table.settings)


def _with_table_values(table: Hyperparameters, criterion: Criterion) -> Criterion:
    """The criterion with the table's values, where the table has a row for it."""
    match criterion:
        case Perturbed():
            rows = {"delta_0": table.delta_0, "beta": table.beta, "n_bins": table.n_quantiles}
        case WorstCase():
            rows = {"delta_0": table.delta_0}
        case Optimism():
            rows = {"c": table.c}
        case _:
            rows = {}
    return make_criterion(criterion, **rows)


def _optimist(criterion: str) -> Callable[[Hyperparameters], Agent]:
    return lambda table: _agent(table, criterion=_with_table_values(table, make_criterion(criterion)))


def _greedy(
    representation: Callable[[Hyperparameters], Representation], epsilon: bool = True, **changes: Any
) -> Callable[[Hyperparameters], Agent]:
    """Risk-neutral on a representation, with some settings changed."""

    def build(table: Hyperparameters) -> Agent:
        chooser = _epsilon_greedy(table) if epsilon else Chooser()
        return override(_agent(table, representation=representation(table), criterion=Mean(), chooser=chooser), changes)

    return build


def _perturbed(
    representation: Callable[[Hyperparameters], Representation] | None = None,
    changes: dict[str, Any] | None = None,
    **fields: Any,
) -> Callable[[Hyperparameters], Agent]:
    """PQR's criterion on a representation; ``fields`` are the criterion's."""

    def build(table: Hyperparameters) -> Agent:
        criterion = make_criterion(_with_table_values(table, Perturbed()), **fields)
        parts = {} if representation is None else {"representation": representation(table)}
        return override(_agent(table, criterion=criterion, **parts), changes or {})

    return build


def _expected(table: Hyperparameters) -> Representation:
    return Expected(table.kappa)


def _categorical(table: Hyperparameters) -> Representation:
    return Categorical(*table.support)


def _implicit(table: Hyperparameters) -> Representation:
    return Implicit(kappa=table.kappa)


def _midpoints(table: Hyperparameters) -> Representation:
    return Implicit(kappa=table.kappa, choose_levels="midpoints")


def _fractions(table: Hyperparameters) -> Representation:
    return FullyParameterised(kappa=table.kappa)


def _particles(table: Hyperparameters) -> Representation:
    return Particles(table.n_quantiles)


def _non_decreasing(table: Hyperparameters) -> Representation:
    return NonDecreasing(kappa=table.kappa, c=table.c)


def _options(table: Hyperparameters) -> QuantileOptions:
    """The choice of options stays random ten times as long as that of actions, as published."""
    return QuantileOptions(
        Quantile(table.n_quantiles, table.kappa), option_epsilon_decay_steps=10.0 * table.epsilon_decay_steps
    )


def _bootstrapped(table: Hyperparameters) -> Agent:
    """An ensemble of which one head is followed for an episode; each bootstraps by its own action."""
    return dataclasses.replace(
        _agent(table, representation=Bootstrapped(kappa=table.kappa), criterion=RandomAtom()),
        criterion_for="behaviour",
        resample_noise_every="episode",
        double=True,
    )


def _on_policy(table: Hyperparameters) -> Agent:
    """QUOTA as published: rollouts of 5 steps in 16 environments, no memory, and the optimiser of its code."""
    agent = _agent(table, representation=_options(table), criterion=Mean(), chooser=_epsilon_greedy(table))
    return dataclasses.replace(
        agent,
        optimiser=RMSProp(1e-4, 0.99, 1e-5, max_grad_norm=5.0),
        replay=ReplaySpec(n_step=5, rollout=5),
        double=False,
        learning=LearningSchedule(start_steps=0, target_update_interval=max(table.target_update_interval, 16 * 5)),
    ).fitted_to(16)


RAINBOW = {"double": True, "dueling": True, "prioritised": True, "n_step": 3}
"""The improvements of Rainbow that are not exploration; its noisy layers are."""


# The paper's schedule ablation has five curves: PQR itself and these. It prints no scales for them; ours are 1 for the
# constant, and DLTV's 50 where DLTV's schedule is imitated.
_CONSTANT: dict[str, Any] = {"schedule.kind": "const", "delta_0": 1.0}
_SQRT_LOG: dict[str, Any] = {"schedule.kind": "sqrt_log", "delta_0": 50.0}

PRESETS: dict[str, tuple[str, Callable[[Hyperparameters], Agent]]] = {
    "dqn": (
        "expected return only, epsilon-greedy",
        _greedy(_expected),
    ),
    "double_dqn": ("DQN that selects with the online parameters", _greedy(_expected, double=True)),
    "prioritised_dqn": (
        "double DQN with prioritised replay",
        _greedy(_expected, double=True, prioritised=True),
    ),
    "c51": ("probabilities on a fixed support, epsilon-greedy", _greedy(_categorical)),
    "qrdqn": (
        "quantile regression, epsilon-greedy: the baseline",
        lambda table: _agent(table, criterion=Mean(), chooser=_epsilon_greedy(table)),
    ),
    "iqn": ("quantiles at sampled levels, epsilon-greedy", _greedy(_implicit)),
    "fqf": ("quantiles at learned levels, epsilon-greedy", _greedy(_fractions)),
    "mmd": ("particles matched by all moments at once, epsilon-greedy", _greedy(_particles)),
    "rainbow": (
        "C51, double, dueling, noisy, prioritised, 3 steps: as DQN Zoo",
        _greedy(_categorical, epsilon=False, noisy=True, **RAINBOW),
    ),
    "rainbow_dopamine": (
        "C51, prioritised, 3 steps, epsilon-greedy: as Dopamine",
        _greedy(_categorical, prioritised=True, n_step=3),
    ),
    "bootstrapped_dqn": ("ten heads with random priors, one followed per episode", _bootstrapped),
    "quota": ("quantile regression, options that act by a part of the quantiles", _greedy(_options)),
    "quota_onpolicy": ("QUOTA as published: 16 environments, rollouts of 5 steps, no replay", _on_policy),
    "ndqfn": (
        "quantile function that cannot decrease, bonus for what is new",
        _greedy(_non_decreasing, epsilon=False),
    ),
    "dltv": ("quantile regression, optimistic bonus c_t sigma_+", _optimist("dltv")),
    "p_dltv": ("DLTV with its bonus times a normal number", _optimist("p_dltv")),
    "pqr": ("quantile regression, randomly re-weighted quantiles: the paper's method", _perturbed()),
    # The paper's closing claim is that its criterion suits any distributional agent.
    "pqr_c51": ("PQR's criterion on C51", _perturbed(_categorical)),
    "pqr_iqn": (
        "PQR's criterion on IQN, whose actions are chosen at evenly spaced levels",
        _perturbed(_midpoints, n_bins=32),
    ),
    "pqr_fqf": ("PQR's criterion on FQF", _perturbed(_fractions, n_bins=32)),
    "pqr_mmd": ("PQR's criterion on MMDQN, its particles sorted", _perturbed(_particles, order="sorted")),
    "pqr_rainbow": ("PQR's criterion in place of Rainbow's noisy layers", _perturbed(_categorical, RAINBOW)),
    "pqr_const": ("ablation: perturbation of constant size", _perturbed(**_CONSTANT)),
    "pqr_opt": ("ablation: always the top quantile instead of a random draw", _perturbed(draw_law="top")),
    "pqr_sqrt_log": ("ablation: size c sqrt(log t / t)", _perturbed(**_SQRT_LOG)),
    "pqr_sqrt_log_opt": (
        "ablation: size c sqrt(log t / t), always the top quantile",
        _perturbed(**_SQRT_LOG, draw_law="top"),
    ),
}
"""What each named agent is, and how it is built from a table."""


def make(name: str, hyperparameters: str = "nchain", protocol: str | None = None, **changes: Any) -> Agent:
    """The named agent with a table of hyperparameters, some of them changed.

    On Atari a ``protocol`` brings what its authors say about learning, exploration and the network.

    A change may name a row of the table (``n_quantiles``, ``delta_0``, ``widths``) or any setting of the agent
    (``criterion_for``, ``criterion.order``); names that do not exist are errors. ``criterion`` puts another one in
    place of the agent's, by name (``criterion="cvar", eta=0.1``), as ``module:Class``, as a class, or ready-made;
    ``representation`` likewise.
    """
    if name not in PRESETS:
        raise SettingsError(f"there is no agent {name!r}; {nearest(name, PRESETS)}")
    table = find_hyperparameters(hyperparameters, protocol)
    # The number of quantiles sizes the head and the perturbation together; everything else is one field of the agent.
    published = dict(table.published.get(name, {}))
    n_quantiles = published.pop("n_quantiles", table.n_quantiles)
    table = dataclasses.replace(table, n_quantiles=int(changes.pop("n_quantiles", n_quantiles)))
    if "batch_size" in changes:
        table = dataclasses.replace(table, batch_size=int(changes["batch_size"]))
    agent = PRESETS[name][1](table)
    if optimiser := published.pop("optimiser", None):
        agent = dataclasses.replace(agent, optimiser=optimiser)
        published.pop("adam_epsilon", None)
    agent = override(agent, published)
    if "representation" in changes:
        agent = dataclasses.replace(agent, representation=make_representation(changes.pop("representation")))
    if "criterion" in changes:
        asked = changes.pop("criterion")
        criterion = make_criterion(asked)
        if isinstance(asked, str):  # one that is given ready-made has its settings
            criterion = _with_table_values(table, criterion)
        agent = dataclasses.replace(agent, criterion=criterion)
    return override(agent, changes)
