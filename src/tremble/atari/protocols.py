"""How Atari scores are made: the published protocols as records, every setting with its unit.

Protocols differ in a dozen places that scores depend on, and their authors count in different units. Here one *step* is
one decision of the agent and one *frame* is one picture of the emulator; every name says which it counts. Where the
values come from is in `protocol_sources`, the settings of single agents are in `published_agents`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from tremble.settings import SettingsError, nearest

T = TypeVar("T")


class About(NamedTuple):
    """What a setting is about."""

    group: str
    text: str
    unit: str = ""


def _setting(default: T, group: str, text: str, unit: str = "") -> T:
    """A field of a protocol; the default is the paper's value."""
    field: T = dataclasses.field(default=default, metadata={"about": About(group, text, unit)})
    return field


@dataclass(frozen=True)
class AtariProtocol:
    """One way to train and to measure on Atari games. A setting that is not given is that of the paper's protocol."""

    name: str
    """What it is called here."""
    about: str
    """Whose it is."""

    frame_skip_min: int = _setting(4, "emulator", "shortest repeat of an action", "frames")
    frame_skip_max: int = _setting(
        4, "emulator", "longest repeat; drawn uniformly at every step if it differs", "frames"
    )
    sticky_probability: float = _setting(
        0.0, "emulator", "chance that the emulator repeats its last action", "per frame"
    )
    action_set: Literal["minimal", "full"] = _setting("minimal", "emulator", "the game's own actions, or all 18")
    game_mode: Literal["default"] = _setting("default", "emulator", "mode and difficulty of the cartridge")

    no_op_min_frames: int = _setting(1, "start of a game", "fewest no-ops, drawn uniformly", "frames")
    no_op_max_frames: int = _setting(30, "start of a game", "most no-ops", "frames")
    fire_reset_training: bool = _setting(
        True, "start of a game", "play FIRE and the next action first, where there is FIRE"
    )
    fire_reset_evaluation: bool = _setting(True, "start of a game", "the same in evaluation")

    life_loss_training: Literal["ignored", "zero_discount", "ends_episode"] = _setting(
        "ends_episode", "end of an episode", "what losing a life does in training"
    )
    life_loss_evaluation: Literal["ignored", "zero_discount", "ends_episode"] = _setting(
        "ignored", "end of an episode", "what it does in evaluation"
    )
    cap_frames: int = _setting(108_000, "end of an episode", "longest episode", "frames")
    cap_counts_training: Literal["game", "life"] = _setting("life", "end of an episode", "what is capped in training")
    cap_terminates: bool = _setting(
        False, "end of an episode", "whether the cap counts as a true end: no bootstrap from there"
    )

    pool_frames: int = _setting(2, "picture", "maximum over so many last frames of the repeat", "frames")
    pool_on: Literal["rgb", "gray"] = _setting(
        "rgb", "picture", "maximum taken in colour or after the conversion to gray"
    )
    missing_frames: Literal["stale", "black"] = _setting(
        "stale", "picture", "what is pooled if the game ends within a repeat: frames of the step before, or black"
    )
    gray: Literal["cv2", "luma_truncated", "ale"] = _setting(
        "cv2", "picture", "0.299 R + 0.587 G + 0.114 B rounded (cv2) or cut down (luma), or the emulator's own gray"
    )
    resize: Literal["cv2_area", "pil_bilinear"] = _setting("cv2_area", "picture", "how it is made small")
    height: int = _setting(84, "picture", "rows", "pixels")
    width: int = _setting(84, "picture", "columns", "pixels")
    stack: int = _setting(4, "picture", "newest pictures shown together", "steps")
    stack_padding: Literal["repeat_first", "zeros_after", "zeros_before"] = _setting(
        "repeat_first",
        "picture",
        "how a new episode's stack is filled: the first picture everywhere, or black after or before it",
    )

    reward_clip: Literal["sign", "clip", "none"] = _setting(
        "sign", "reward", "of the sum over a repeat, in training only"
    )

    gamma: float = _setting(0.99, "learning", "discount", "per step")
    replay_capacity: int = _setting(1_000_000, "learning", "size of the replay", "transitions")
    replay_start_steps: int = _setting(50_000, "learning", "time before the first update, of random actions", "steps")
    batch_size: int = _setting(32, "learning", "transitions of an update")
    update_every_steps: int = _setting(4, "learning", "time between updates", "steps")
    target_update_steps: int = _setting(10_000, "learning", "time between copies to the target network", "steps")

    epsilon_start: float = _setting(1.0, "exploration", "probability of a random action at first")
    epsilon_end: float = _setting(0.01, "exploration", "and at last")
    epsilon_decay_steps: int = _setting(250_000, "exploration", "length of the straight line between them", "steps")
    epsilon_origin: Literal["zero", "learning_start"] = _setting("zero", "exploration", "where that line begins")

    evaluate_every_steps: int = _setting(250_000, "evaluation", "time between evaluations", "steps")
    evaluate_steps: int = _setting(125_000, "evaluation", "length of an evaluation", "steps")
    evaluate_ends: Literal["whole_episode", "cut"] = _setting(
        "whole_episode", "evaluation", "whether the last episode is played out or left out of the mean"
    )
    evaluate_untrained: bool = _setting(False, "evaluation", "whether there is an evaluation before training")
    evaluate_epsilon: float = _setting(0.001, "evaluation", "probability of a random action")
    published_returns: Literal["training", "evaluation"] = _setting(
        "evaluation", "evaluation", "what the published curves show"
    )
    published_score: Literal["best", "every iteration"] = _setting("best", "evaluation", "what is reported of them")
    run_frames: int = _setting(50_000_000, "evaluation", "length of a run", "frames")

    padding: Literal["valid", "same"] = _setting("valid", "network", "of the convolutions 32x8s4, 64x4s2, 64x3s1")
    torso_initialisation: Literal["he_uniform", "fan_in_uniform", "xavier_uniform", "variance_scaling"] = _setting(
        "he_uniform", "network", "weights of the convolutions"
    )
    torso_bias: Literal["zero", "fan_in_uniform"] = _setting("zero", "network", "their biases")
    dense_initialisation: Literal["fan_in_uniform", "xavier_uniform", "variance_scaling"] = _setting(
        "fan_in_uniform", "network", "weights of the layer of 512 and of the head"
    )
    dense_bias: Literal["zero", "fan_in_uniform"] = _setting("fan_in_uniform", "network", "their biases")

    def __post_init__(self) -> None:
        """Refuse what no emulator can do."""
        if not 1 <= self.frame_skip_min <= self.frame_skip_max:
            raise SettingsError("the frame skip must be at least 1, and its longest not below its shortest")
        if not 0 <= self.no_op_min_frames <= self.no_op_max_frames:
            raise SettingsError("the number of no-ops cannot be negative, and its most not below its fewest")
        if not 0.0 <= self.sticky_probability < 1.0:
            raise SettingsError(f"sticky_probability is a chance below 1, got {self.sticky_probability}")
        if self.pool_frames not in (1, 2) or self.pool_frames > self.frame_skip_min:
            raise SettingsError("pool_frames is 1 or 2 and no more than the frame skip")

    def settings(self) -> dict[str, Any]:
        """Every setting but the name, in order."""
        return {name: getattr(self, name) for name in about_settings()}

    def change(self, name: str, about: str, **changes: Any) -> AtariProtocol:
        """A protocol that differs in some settings; it needs a name of its own, so that results are not mixed."""
        for setting in changes:
            if setting not in self.settings():
                raise SettingsError(f"there is no setting {setting!r}; {nearest(setting, self.settings())}")
        return dataclasses.replace(self, name=name, about=about, **changes)


def about_settings() -> dict[str, About]:
    """What every setting is about, in the order of the record."""
    return {f.name: f.metadata["about"] for f in dataclasses.fields(AtariProtocol) if "about" in f.metadata}


PAPER = AtariProtocol(
    name="paper",
    about="Pitfall of Optimism, 30 no-ops; what it leaves unsaid as in the code base its settings repeat",
)

DQN_ZOO = AtariProtocol(
    name="dqn_zoo",
    about="DQN Zoo: 30 no-ops, a lost life ends the return but not the game",
    fire_reset_training=False,
    fire_reset_evaluation=False,
    life_loss_training="zero_discount",
    life_loss_evaluation="zero_discount",
    cap_counts_training="game",
    missing_frames="black",
    gray="luma_truncated",
    resize="pil_bilinear",
    stack_padding="zeros_after",
    reward_clip="clip",
    epsilon_decay_steps=1_000_000,
    epsilon_origin="learning_start",
    evaluate_ends="cut",
    evaluate_untrained=True,
    published_score="every iteration",
    run_frames=200_000_000,
    torso_initialisation="fan_in_uniform",
    torso_bias="fan_in_uniform",
)

DOPAMINE = AtariProtocol(
    name="dopamine",
    about="Dopamine: sticky actions, no no-ops, only the end of the game ends an episode",
    sticky_probability=0.25,
    no_op_min_frames=0,
    no_op_max_frames=0,
    fire_reset_training=False,
    fire_reset_evaluation=False,
    life_loss_training="ignored",
    cap_counts_training="game",
    pool_on="gray",
    gray="ale",
    stack_padding="zeros_before",
    reward_clip="clip",
    replay_start_steps=20_000,
    target_update_steps=8_000,
    epsilon_origin="learning_start",
    published_returns="training",
    published_score="every iteration",
    run_frames=200_000_000,
    padding="same",
    torso_initialisation="variance_scaling",
    dense_initialisation="variance_scaling",
    dense_bias="zero",
)

PAPER_STICKY = PAPER.change(
    "paper_sticky",
    "Pitfall of Optimism under sticky actions: nothing changed but the emulator, version v0",
    sticky_probability=0.25,
)

PAPER_V4 = PAPER.change(
    "paper_v4",
    "Pitfall of Optimism read literally: the plain v4 games, whose frame skip is random, 2 to 4",
    frame_skip_min=2,
)

PROTOCOLS: Mapping[str, AtariProtocol] = MappingProxyType(
    {p.name: p for p in (PAPER, DQN_ZOO, DOPAMINE, PAPER_STICKY, PAPER_V4)}
)
"""Protocols by name; the last two are variants of the first."""


def find_protocol(protocol: str | AtariProtocol, **changes: Any) -> AtariProtocol:
    """The protocol of this name, or one of your own, some of its settings changed."""
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            raise SettingsError(f"there is no protocol {protocol!r}; {nearest(protocol, PROTOCOLS)}")
        protocol = PROTOCOLS[protocol]
    return protocol.change(f"{protocol.name}, changed", protocol.about, **changes) if changes else protocol


def differences(*protocols: AtariProtocol) -> list[str]:
    """Settings in which they do not agree."""
    first, *rest = (p.settings() for p in protocols)
    return [name for name in first if any(other[name] != first[name] for other in rest)]
