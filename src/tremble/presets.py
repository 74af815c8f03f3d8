"""Named agents as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tremble.agent import Agent
from tremble.choosers import Chooser
from tremble.columns import COLUMNS, Column, under
from tremble.core import Criterion, Representation
from tremble.criteria import Mean, Optimism, Perturbed, RandomAtom, WorstCase, make_criterion
from tremble.envs.protocols import find_protocol
from tremble.learn import Adam, RMSProp
from tremble.networks import ConvSpec, MlpSpec
from tremble.options import QuantileOptions
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
    make_representation,
)
from tremble.settings import SettingsError, nearest, override


def _epsilon_greedy(column: Column) -> Chooser:
    return Chooser(
        column.epsilon_start,
        column.epsilon_end,
        float(column.epsilon_decay_steps),
        epsilon_origin=column.epsilon_origin,
    )


def _network(column: Column) -> MlpSpec | ConvSpec:
    widths = tuple(column.widths)
    return MlpSpec(widths) if column.network is None else dataclasses.replace(column.network, widths=widths)


def _agent(column: Column, **parts: Any) -> Agent:
    """The settings all agents of a column share."""
    agent = Agent(
        **({"representation": Quantile(column.n_quantiles, column.kappa)} | parts),
        network=_network(column),
        optimiser=Adam(column.learning_rate, 0.01 / column.batch_size),
        gamma=column.gamma,
        batch_size=column.batch_size,
        memory_size=column.memory_size,
        update_interval=column.update_interval,
        target_update_interval=column.target_update_interval,
        start_steps=column.start_steps,
    )
    return override(agent, column.settings)


def _with_rows_of(column: Column, criterion: Criterion) -> Criterion:
    """The criterion with the column's values, where the table has a row for it."""
    match criterion:
        case Perturbed():
            rows = {"delta_0": column.delta_0, "beta": column.beta, "n_bins": column.n_quantiles}
        case WorstCase():
            rows = {"delta_0": column.delta_0}
        case Optimism():
            rows = {"c": column.c}
        case _:
            rows = {}
    return make_criterion(criterion, **rows)


def _optimist(criterion: str) -> Callable[[Column], Agent]:
    return lambda column: _agent(column, criterion=_with_rows_of(column, make_criterion(criterion)))


def _greedy(
    representation: Callable[[Column], Representation], epsilon: bool = True, **changes: Any
) -> Callable[[Column], Agent]:
    """Risk-neutral on a representation, with some settings changed."""

    def build(column: Column) -> Agent:
        chooser = _epsilon_greedy(column) if epsilon else Chooser()
        return override(
            _agent(column, representation=representation(column), criterion=Mean(), chooser=chooser), changes
        )

    return build


def _perturbed(
    representation: Callable[[Column], Representation] | None = None,
    changes: dict[str, Any] | None = None,
    **fields: Any,
) -> Callable[[Column], Agent]:
    """PQR's criterion on a representation; ``fields`` are the criterion's."""

    def build(column: Column) -> Agent:
        criterion = make_criterion(_with_rows_of(column, Perturbed()), **fields)
        parts = {} if representation is None else {"representation": representation(column)}
        return override(_agent(column, criterion=criterion, **parts), changes or {})

    return build


def _expected(column: Column) -> Representation:
    return Expected(column.kappa)


def _categorical(column: Column) -> Representation:
    return Categorical(*column.support)


def _implicit(column: Column) -> Representation:
    return Implicit(kappa=column.kappa)


def _midpoints(column: Column) -> Representation:
    return Implicit(kappa=column.kappa, choose_levels="midpoints")


def _fractions(column: Column) -> Representation:
    return FullyParameterised(kappa=column.kappa)


def _particles(column: Column) -> Representation:
    return Particles(column.n_quantiles)


def _non_decreasing(column: Column) -> Representation:
    return NonDecreasing(kappa=column.kappa, c=column.c)


def _options(column: Column) -> QuantileOptions:
    """The choice of options stays random ten times as long as that of actions, as published."""
    return QuantileOptions(
        Quantile(column.n_quantiles, column.kappa), option_epsilon_decay_steps=10.0 * column.epsilon_decay_steps
    )


def _bootstrapped(column: Column) -> Agent:
    """An ensemble of which one head is followed for an episode; each bootstraps by its own action."""
    return dataclasses.replace(
        _agent(column, representation=Bootstrapped(kappa=column.kappa), criterion=RandomAtom()),
        criterion_for="behaviour",
        hold="episode",
        double=True,
    )


def _on_policy(column: Column) -> Agent:
    """QUOTA as published: rollouts of 5 steps in 16 environments, no memory, and the optimiser of its code."""
    agent = _agent(column, representation=_options(column), criterion=Mean(), chooser=_epsilon_greedy(column))
    return dataclasses.replace(
        agent,
        optimiser=RMSProp(1e-4, 0.99, 1e-5, max_grad_norm=5.0),
        replay=ReplaySpec(n_step=5, rollout=5),
        double=False,
        updates_per_round=1,
        start_steps=0,
        target_update_interval=max(column.target_update_interval, 16 * 5),
    ).fitted_to(16)


RAINBOW = {"double": True, "dueling": True, "prioritised": True, "n_step": 3}
"""The improvements of Rainbow that are not exploration; its noisy layers are."""


PRESETS: dict[str, tuple[str, Callable[[Column], Agent]]] = {
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
        lambda column: _agent(column, criterion=Mean(), chooser=_epsilon_greedy(column)),
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
    # The paper's schedule ablation has five curves: pqr itself and these. It prints no scales for them; ours are 1 for
    # the constant, and DLTV's 50 where DLTV's schedule is imitated.
    "pqr_const": ("ablation: perturbation of constant size", _perturbed(schedule="const", delta_0=1.0)),
    "pqr_opt": ("ablation: always the top quantile instead of a random draw", _perturbed(draw_law="top")),
    "pqr_sqrt_log": ("ablation: size c sqrt(log t / t)", _perturbed(schedule="sqrt_log", delta_0=50.0)),
    "pqr_sqrt_log_opt": (
        "ablation: size c sqrt(log t / t), always the top quantile",
        _perturbed(schedule="sqrt_log", delta_0=50.0, draw_law="top"),
    ),
}
"""What each named agent is, and how it is built from a column."""


def make(name: str, domain: str = "nchain", protocol: str | None = None, **changes: Any) -> Agent:
    """The named agent with a domain's hyperparameters, some of them changed.

    On Atari a ``protocol`` brings what its authors say about learning, exploration and the network.

    A change may name a row of the column (``n_quantiles``, ``delta_0``, ``widths``) or any setting of the agent
    (``criterion_for``, ``criterion.order``); names that do not exist are errors. ``criterion`` puts another one in
    place of the agent's, by name (``criterion="cvar", eta=0.1``), as ``module:Class``, as a class, or ready-made;
    ``representation`` likewise.
    """
    if name not in PRESETS:
        raise SettingsError(f"there is no agent {name!r}; {nearest(name, PRESETS)}")
    if domain not in COLUMNS:
        raise SettingsError(f"there are no hyperparameters for {domain!r}; {nearest(domain, COLUMNS)}")
    column = COLUMNS[domain]
    if protocol is not None:
        if domain != "atari":
            raise SettingsError(f"protocols are about Atari; {domain!r} has none")
        column = under(column, find_protocol(protocol))
    # The number of quantiles sizes the head and the perturbation together; everything else is one field of the agent.
    published = dict(column.published.get(name, {}))
    n_quantiles = published.pop("n_quantiles", column.n_quantiles)
    column = dataclasses.replace(column, n_quantiles=int(changes.pop("n_quantiles", n_quantiles)))
    if "batch_size" in changes:
        column = dataclasses.replace(column, batch_size=int(changes["batch_size"]))
    agent = PRESETS[name][1](column)
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
            criterion = _with_rows_of(column, criterion)
        agent = dataclasses.replace(agent, criterion=criterion)
    return override(agent, changes)
