"""The settings that determine a run, as data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from tremble.agent import Agent
from tremble.core import JaxEnv
from tremble.envs.registry import benchmark_of, is_jax_env, make_jax_env
from tremble.hyperparameters import default_hyperparameters
from tremble.presets import PARTS, make
from tremble.settings import (
    COUNT,
    NON_NEGATIVE,
    SIZE,
    SettingsError,
    check_ranges,
    convert_whole_numbers,
    describe,
    override,
    reference,
)

CUSTOM = "custom"
"""In place of a name: an agent or environment that was given as an object."""


@dataclass(frozen=True)
class RunSpec:
    """Settings of a run: agent, environment, length, seed, and what is recorded and evaluated."""

    agent: str
    env: str
    """A name from `tremble.list_envs()`, a Gymnasium id, or ``module:Class``."""
    steps: Annotated[int, COUNT]
    seed: Annotated[int, NON_NEGATIVE] = 0
    hyperparameters: str | None = None
    """Name of a table of hyperparameters; None picks the one for the environment."""
    agent_options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    record_every: Annotated[int, COUNT] = 500
    n_envs: Annotated[int, SIZE] = 1
    parallel: bool = False
    evaluate_every: Annotated[int, NON_NEGATIVE] = 0
    """Steps between two evaluations; 0 makes none."""
    evaluate_episodes: Annotated[int, COUNT] = 10
    evaluate_steps: Annotated[int, NON_NEGATIVE] = 0
    """Length of an evaluation in steps, in place of a number of episodes; 0 counts episodes."""
    final_episodes: Annotated[int, NON_NEGATIVE] = 0
    """Episodes of the evaluation after training, on seeds of its own; 0 makes none."""
    evaluate_env: str | None = None
    """The environment to evaluate in, if it is another than that of training."""

    def __post_init__(self) -> None:
        """Validate fields; whole numbers may be written as 1e5."""
        convert_whole_numbers(self)
        check_ranges(self)

    @property
    def protocol(self) -> str | None:
        """The protocol that an Atari game is played under."""
        benchmark = benchmark_of(self.env)
        return None if benchmark is None else str(self.env_options.get("protocol", benchmark.default_protocol))

    def build_agent(self) -> Agent:
        """The agent the name and the options stand for."""
        table = self.hyperparameters or default_hyperparameters(self.env)
        if table == "atari" and self.protocol:
            return make(self.agent, table, protocol=self.protocol, **dict(self.agent_options))
        return make(self.agent, table, **dict(self.agent_options))

    def rebuild_agent(self, recorded: Mapping[str, Any]) -> Agent:
        """The agent of a saved run, with the settings recorded in its file: presets may have changed since."""
        agent = self.build_agent()
        known = describe(agent)
        if unknown := sorted(recorded.keys() - known.keys()):
            raise SettingsError(f"this version has no setting {', '.join(unknown)} for {self.agent!r}")
        return override(agent, {name: value for name, value in recorded.items() if value != known[name]})

    def build(self) -> tuple[Agent, JaxEnv]:
        """Agent and environment, of a run inside XLA."""
        return self.build_agent(), make_jax_env(self.env, self.env_options)

    def compiled(self, agent: Agent) -> bool:
        """Whether the whole run trains inside XLA: a single JAX environment, and replay as `Replay` has it."""
        replay = agent.replay
        plain = replay.n_step == 1 and not (replay.prioritised or replay.rollout or agent.async_learning)
        plain = plain and agent.learning.updates_per_round == 1
        return is_jax_env(self.env) and plain and self.n_envs == 1

    def describe(self, agent: Agent | None = None) -> dict[str, Any]:
        """The full settings behind the names, for people and for comparing two runs."""
        agent = agent or self.build_agent()
        described = {
            "agent": self.agent,
            "env": self.env,
            "steps": self.steps,
            "seed": self.seed,
            "record_every": self.record_every,
            "agent_settings": describe(agent),
            "env_settings": (
                describe(make_jax_env(self.env, self.env_options))  # type: ignore[arg-type]
                if is_jax_env(self.env)
                else dict(self.env_options)
            ),
        }
        words = in_words(self.agent_options)
        for part in ("criterion", "representation", "network"):  # two kinds may have the same settings
            if part in words:
                described[part] = words[part]
        if not self.compiled(agent):
            described |= {"n_envs": self.n_envs, "parallel": self.parallel}
        if self.evaluate_every:
            length = "evaluate_steps" if self.evaluate_steps else "evaluate_episodes"
            described |= {"evaluate_every": self.evaluate_every, length: getattr(self, length)}
        if self.final_episodes:
            described["final_episodes"] = self.final_episodes
        if (self.evaluate_every or self.final_episodes) and self.evaluate_env is not None:
            described["evaluate_env"] = self.evaluate_env
        return json.loads(json.dumps(described, default=_in_words))

    def as_json(self) -> dict[str, Any]:
        """The fields, from which `RunSpec(**...)` makes an equal one."""
        words = dataclasses.replace(self, agent_options=in_words(self.agent_options))
        return json.loads(json.dumps(asdict(words), default=_in_words))


def in_words(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an agent, a part that is given as an object by its class and its settings."""
    words: dict[str, Any] = {}
    for part in PARTS:
        given = options.get(part)
        if dataclasses.is_dataclass(given) and not isinstance(given, type):
            words |= {part: reference(given)} | {f"{part}.{name}": value for name, value in describe(given).items()}
    return words | {name: option for name, option in options.items() if name not in words or name not in PARTS}


def _in_words(option: Any) -> str:
    """A function or class as an option in a file: by its name."""
    if hasattr(option, "__qualname__"):
        return reference(option)
    raise SettingsError(
        f"{option!r} has no name to be saved by: name its class, with settings beside it, or train an agent that holds "
        "it: tremble.train(tremble.make(..., criterion=...), ...)"
    )
