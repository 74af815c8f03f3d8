"""Named agents as data, and the one way in which a setting of an agent gets its value.

`resolve` applies five layers, each of which may change what the ones before it set:

1. ``default``: what the agent's parts (representation, criterion, optimiser, ...) are made with;
2. ``table``: the hyperparameters of a domain, on Atari under a protocol;
3. ``preset``: what the named agent sets itself;
4. ``published``: what this agent was published with, where that differs from the table;
5. ``yours``: the changes of the caller.

It returns the agent and the trace of all layers. This module is data until `resolve` is called, so that agents can be
listed without JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tremble.hyperparameters import Hyperparameters, find_hyperparameters
from tremble.settings import SettingsError, convert, describe, full_name, import_named, nearest, override, reference

if TYPE_CHECKING:
    from tremble.agent import Agent


@dataclass(frozen=True)
class Preset:
    """A named agent: its parts by name, and what it sets differently from them and from the table."""

    about: str
    """One line for lists of agents."""
    representation: str = "quantile"
    criterion: str = "mean"
    optimiser: str = "adam"
    network: str = "auto"
    epsilon_greedy: bool = False
    """Whether it takes epsilon from the table; agents that explore otherwise have epsilon 0."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings by name; a function is called with the table."""


RAINBOW = {"double": True, "dueling": True, "prioritised": True, "n_step": 3}
"""The improvements of Rainbow that are not exploration; its noisy layers are."""
_ROLLOUT, _ENVS = 5, 16
"""QUOTA as published: steps of a rollout, and environments."""
_ON_POLICY: dict[str, Any] = {
    "learning_rate": 1e-4,
    "rms_decay": 0.99,
    "rms_epsilon": 1e-5,
    "max_grad_norm": 5.0,
    "decay_updates": 0,
    "double": False,
    "updates_per_round": 1,
    "n_step": _ROLLOUT,
    "rollout": _ROLLOUT,
    "start_steps": 0,
    **dict.fromkeys(("batch_size", "memory_size", "update_interval"), _ROLLOUT * _ENVS),
    "target_update_interval": lambda table: max(table.target_update_interval, _ROLLOUT * _ENVS),
}


PRESETS: dict[str, Preset] = {
    "dqn": Preset("expected return only, epsilon-greedy", "expected", epsilon_greedy=True),
    "double_dqn": Preset(
        "DQN that selects with the online parameters", "expected", epsilon_greedy=True, settings={"double": True}
    ),
    "prioritised_dqn": Preset(
        "double DQN with prioritised replay",
        "expected",
        epsilon_greedy=True,
        settings={"double": True, "prioritised": True},
    ),
    "c51": Preset("probabilities on a fixed support, epsilon-greedy", "categorical", epsilon_greedy=True),
    "qrdqn": Preset("quantile regression, epsilon-greedy: the baseline", epsilon_greedy=True),
    "iqn": Preset("quantiles at sampled levels, epsilon-greedy", "implicit", epsilon_greedy=True),
    "fqf": Preset("quantiles at learned levels, epsilon-greedy", "fully_parameterised", epsilon_greedy=True),
    "mmd": Preset("particles matched by all moments at once, epsilon-greedy", "particles", epsilon_greedy=True),
    "rainbow": Preset(
        "C51, double, dueling, noisy, prioritised, 3 steps: as DQN Zoo",
        "categorical",
        settings={"noisy": True} | RAINBOW,
    ),
    "rainbow_dopamine": Preset(
        "C51, prioritised, 3 steps, epsilon-greedy: as Dopamine",
        "categorical",
        epsilon_greedy=True,
        settings={"prioritised": True, "n_step": 3},
    ),
    "bootstrapped_dqn": Preset(
        "ten heads with random priors, one followed per episode",
        "bootstrapped",  # each head bootstraps by its own action
        "random_atom",
        settings={"criterion_for": "behaviour", "resample_noise_every": "episode", "double": True},
    ),
    "quota": Preset("quantile regression, options that act by a part of the quantiles", "options", epsilon_greedy=True),
    "quota_onpolicy": Preset(
        "QUOTA as published: 16 environments, rollouts of 5 steps, no replay",
        "options",
        optimiser="rmsprop",
        epsilon_greedy=True,
        settings=_ON_POLICY,
    ),
    "ndqfn": Preset("quantile function that cannot decrease, bonus for what is new", "non_decreasing"),
    "dltv": Preset("quantile regression, optimistic bonus c_t sigma_+", criterion="dltv"),
    "p_dltv": Preset("DLTV with its bonus times a normal number", criterion="p_dltv"),
    "pqr": Preset("quantile regression, randomly re-weighted quantiles: the paper's method", criterion="pqr"),
    # The paper's closing claim is that its criterion suits any distributional agent.
    "pqr_c51": Preset("PQR's criterion on C51", "categorical", "pqr"),
    "pqr_iqn": Preset(
        "PQR's criterion on IQN, whose actions are chosen at evenly spaced levels",
        "implicit",
        "pqr",
        settings={"choose_levels": "midpoints", "n_bins": 32},
    ),
    "pqr_fqf": Preset("PQR's criterion on FQF", "fully_parameterised", "pqr", settings={"n_bins": 32}),
    "pqr_mmd": Preset(
        "PQR's criterion on MMDQN, its particles sorted", "particles", "pqr", settings={"criterion.order": "sorted"}
    ),
    "pqr_rainbow": Preset("PQR's criterion in place of Rainbow's noisy layers", "categorical", "pqr", settings=RAINBOW),
    # The paper's schedule ablation has five curves: pqr itself and these. It prints no scales for them; ours are 1 for
    # the constant, and DLTV's 50 where DLTV's schedule is imitated.
    "pqr_const": Preset(
        "ablation: perturbation of constant size",
        criterion="pqr",
        settings={"criterion.schedule.kind": "const", "delta_0": 1.0},
    ),
    "pqr_opt": Preset(
        "ablation: always the top quantile instead of a random draw", criterion="pqr", settings={"draw_law": "top"}
    ),
    "pqr_sqrt_log": Preset(
        "ablation: size c sqrt(log t / t)",
        criterion="pqr",
        settings={"criterion.schedule.kind": "sqrt_log", "delta_0": 50.0},
    ),
    "pqr_sqrt_log_opt": Preset(
        "ablation: size c sqrt(log t / t), always the top quantile",
        criterion="pqr",
        settings={"criterion.schedule.kind": "sqrt_log", "delta_0": 50.0, "draw_law": "top"},
    ),
}
"""The named agents."""


Layer = Literal["default", "table", "preset", "published", "yours"]


@dataclass(frozen=True)
class Assignment:
    """One layer that gave a setting its value."""

    layer: Layer
    source: str
    """The part, the table, the preset, the publication, or the argument that the value comes from."""
    value: Any
    """As `describe` shows it."""


Trace = dict[str, list[Assignment]]
"""For every part and setting of an agent, by its full name, what set it; the last one is in force."""


PARTS = ("representation", "criterion", "optimiser", "network")
"""Parts of an agent that a layer may replace as a whole, before it changes settings."""


@dataclass(frozen=True)
class _Rule:
    """A setting of agents that takes its value from the table."""

    setting: str
    """The last part of its name, or as much as tells it from others."""
    entry: str
    """The entry of the table."""
    value: Callable[[Any], Any] = lambda entry: entry


_RULES = (
    *(
        _Rule(name, name)
        for name in (
            "batch_size",
            "memory_size",
            "learning_rate",
            "gamma",
            "update_interval",
            "target_update_interval",
            "start_steps",
            "widths",
            "n_quantiles",
            "kappa",
            "c",
            "delta_0",
            "beta",
        )
    ),
    _Rule("n_particles", "n_quantiles"),
    _Rule("n_bins", "n_quantiles"),
    _Rule("adam_epsilon", "batch_size", lambda size: 0.01 / max(size, 1)),
    _Rule("representation.v_min", "support", lambda support: support[0]),
    _Rule("representation.v_max", "support", lambda support: support[1]),
    # QUOTA's choice of options stays random ten times as long as that of actions, as published.
    _Rule("option_epsilon_decay_steps", "epsilon_decay_steps", lambda steps: 10.0 * steps),
)
_EPSILON_RULES = tuple(
    _Rule(f"chooser.{name}", name) for name in ("epsilon_start", "epsilon_end", "epsilon_decay_steps", "epsilon_origin")
)


def make(name: str, hyperparameters: str = "nchain", protocol: str | None = None, **changes: Any) -> Agent:
    """The named agent with a table of hyperparameters, some of them changed.

    On Atari a ``protocol`` brings what its authors say about learning, exploration and the network.

    A change may name an entry of the table (``n_quantiles``, ``delta_0``, ``widths``) or any setting of the agent
    (``criterion_for``, ``criterion.order``); names that do not exist are errors. ``criterion`` replaces the agent's
    criterion, given by name (``criterion="cvar", eta=0.1``), as ``module:Class``, as a class, or as an object;
    ``representation``, ``network`` and ``optimiser`` likewise. `resolve` also says where every value comes from.
    """
    return resolve(name, hyperparameters, protocol, changes)[0]


def resolve(
    name: str,
    hyperparameters: str = "nchain",
    protocol: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Agent, Trace]:
    """The agent that `make` returns, and for each of its settings the layers that set it.

    A change (or a published value) that names an entry of the table also changes what follows from the entry: Adam's
    epsilon from the batch size, the bins of the perturbation from the number of quantiles. ``n_quantiles`` is accepted
    for every agent, also where nothing depends on it, so that studies can give one size to many agents.
    """
    if name not in PRESETS:
        raise SettingsError(f"there is no agent {name!r}; {nearest(name, PRESETS)}")
    preset, changes = PRESETS[name], dict(changes or {})
    table = find_hyperparameters(hyperparameters, protocol)
    published = table.published.get(name, {})
    table_name = hyperparameters if protocol is None else f"{hyperparameters} under {protocol}"
    layers = _Layers(name, table, table_name)
    layers.apply_table()
    layers.follow(published | changes)
    own = {key: value(layers.table) if callable(value) else value for key, value in preset.settings.items()}
    layers.apply("preset", own, name)
    layers.apply("published", published, table.sources.get(name, f"{name} in {layers.table_name}"))
    layers.apply("yours", changes)
    return layers.agent, layers.trace()


class _Layers:
    """An agent in the making, with what each layer assigned."""

    def __init__(self, name: str, table: Hyperparameters, table_name: str) -> None:
        from tremble.agent import Agent

        preset, self.table, self.table_name = PRESETS[name], table, table_name
        self.agent = Agent(**{part: _make_part(part, getattr(preset, part)) for part in PARTS})
        self._rules = _RULES + (_EPSILON_RULES if preset.epsilon_greedy else ())
        self._assigned = [(part, Assignment("default", "Preset", getattr(Preset, part))) for part in PARTS]
        self._assigned += [
            (part, Assignment("preset", name, said))
            for part in PARTS
            if (said := getattr(preset, part)) != getattr(Preset, part)
        ]
        for path, value in describe(self.agent).items():
            owner = getattr(self.agent, path.split(".")[0]) if "." in path else self.agent
            self._assigned.append((path, Assignment("default", type(owner).__name__, value)))

    def apply_table(self, under: str = "") -> None:
        """Set everything that the table says, or only the settings of one part that it has."""
        further = self.table.settings
        if under:
            known = [path for path in describe(self.agent) if path.startswith(under)]
            further = {name: x for name, x in further.items() if any(f".{p}".endswith(f".{name}") for p in known)}
        elif self.table.network is not None:
            self._replace("network", self.table.network, "table", self.table_name)
        self._assign("table", self._values(self._rules, under), self.table_name)
        self._assign("table", further, self.table_name)

    def follow(self, changes: Mapping[str, Any]) -> None:
        """Change entries of the table, and set what follows from them under other names."""
        entries = {rule.entry for rule in self._rules} - {"support"}
        for entry, value in changes.items():
            if entry in entries and not isinstance(value, str | None):
                given = convert(value, type(getattr(self.table, entry)), getattr(self.table, entry), entry)
                self.table = dataclasses.replace(self.table, **{entry: given})
                following = [r for r in self._rules if r.entry == entry and r.setting.rpartition(".")[2] != entry]
                try:
                    self._assign("table", self._values(following), f"{self.table_name}, with {entry}={value}")
                except SettingsError as error:  # about a setting that the user did not name
                    raise SettingsError(f"{entry}={value}: {error}") from error

    def apply(self, layer: Layer, changes: Mapping[str, Any], source: str | None = None) -> None:
        """Replace parts, then change settings. Without a source, it is the change itself."""
        settings = dict(changes)
        for part in PARTS:
            if part in settings:
                given = settings.pop(part)
                self._replace(part, given, layer, source or f"{part}={_show(given)}")
                if part in ("criterion", "network") and isinstance(given, str) and ":" not in given:
                    self.apply_table(f"{part}.")
        if not any(path.endswith("n_quantiles") for path in describe(self.agent)):
            settings.pop("n_quantiles", None)
        self._assign(layer, settings, source)

    def trace(self) -> Trace:
        """The assignments of every setting the agent has now."""
        trace: Trace = {path: [] for path in (*PARTS, *describe(self.agent))}
        for path, assignment in self._assigned:
            if path in trace:
                trace[path].append(assignment)
        return trace

    def _values(self, rules: Iterable[_Rule], under: str = "") -> dict[str, Any]:
        """What the table says about settings that the agent has."""
        paths = [path for path in describe(self.agent) if path.startswith(under)]
        return {
            path: rule.value(getattr(self.table, rule.entry))
            for rule in rules
            for path in paths
            if f".{path}".endswith(f".{rule.setting}")
        }

    def _replace(self, part: str, given: Any, layer: Layer, source: str) -> None:
        self.agent = dataclasses.replace(self.agent, **{part: _make_part(part, given)})
        self._assigned.append((part, Assignment(layer, source, _show(given))))
        for path, setting in describe(self.agent).items():
            if path.startswith(f"{part}."):
                self._assigned.append((path, Assignment(layer, source, setting)))

    def _assign(self, layer: Layer, settings: Mapping[str, Any], source: str | None) -> None:
        known = describe(self.agent)
        paths = {name: full_name(name, known) for name in settings}
        self.agent = override(self.agent, settings)
        values = describe(self.agent)
        for name, path in paths.items():
            said = source or f"{name}={_show(settings[name])}"
            self._assigned.append((path, Assignment(layer, said, values[path])))


def _make_part(part: str, given: Any) -> Any:
    """A part of an agent by its name, as ``module:Class``, from its class, or one that is given as an object."""
    from tremble.criteria import make_criterion
    from tremble.networks import make_network
    from tremble.optimisers import Adam, RMSProp
    from tremble.representations import make_representation

    if part == "representation":
        return make_representation(given)
    if part == "criterion":
        return make_criterion(given)
    if part == "network":
        return make_network(given)
    optimisers = {"adam": Adam, "rmsprop": RMSProp}
    if isinstance(given, str):
        if ":" not in given and given not in optimisers:
            raise SettingsError(f"there is no optimiser {given!r}; {nearest(given, optimisers)}")
        given = import_named(given) if ":" in given else optimisers[given]
    made = given() if isinstance(given, type) and issubclass(given, Adam | RMSProp) else given
    if not isinstance(made, Adam | RMSProp):
        raise SettingsError(f"{given!r} is no optimiser: give one of {', '.join(optimisers)}, or one of their objects")
    return made


def _show(value: Any) -> str:
    return str(value) if isinstance(value, str | bool | int | float | list | tuple | None) else reference(value)
