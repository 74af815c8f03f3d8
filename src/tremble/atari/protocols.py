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
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from tremble.settings import SettingsError, nearest

LifeLoss = Literal["ignored", "zero_discount", "ends_episode"]
Resize = Literal["cv2_area", "pil_bilinear"]


class About(NamedTuple):
    """What a setting is about."""

    group: str
    text: str
    unit: str = ""


@dataclass(frozen=True)
class AtariProtocol:
    """One way to train and to measure on Atari games."""

    name: Annotated[str, About("protocol", "what it is called here")]
    about: Annotated[str, About("protocol", "whose it is")]

    frame_skip_min: Annotated[int, About("emulator", "shortest repeat of an action", "frames")]
    frame_skip_max: Annotated[
        int, About("emulator", "longest repeat; drawn uniformly at every step if it differs", "frames")
    ]
    sticky_probability: Annotated[
        float, About("emulator", "chance that the emulator repeats its last action", "per frame")
    ]
    action_set: Annotated[Literal["minimal", "full"], About("emulator", "the game's own actions, or all 18")]
    game_mode: Annotated[Literal["default"], About("emulator", "mode and difficulty of the cartridge")]

    no_op_min_frames: Annotated[int, About("start of a game", "fewest no-ops, drawn uniformly", "frames")]
    no_op_max_frames: Annotated[int, About("start of a game", "most no-ops", "frames")]
    fire_reset_training: Annotated[
        bool, About("start of a game", "play FIRE and the next action first, where there is FIRE")
    ]
    fire_reset_evaluation: Annotated[bool, About("start of a game", "the same in evaluation")]

    life_loss_training: Annotated[LifeLoss, About("end of an episode", "what losing a life does in training")]
    life_loss_evaluation: Annotated[LifeLoss, About("end of an episode", "what it does in evaluation")]
    cap_frames: Annotated[int, About("end of an episode", "longest episode", "frames")]
    cap_counts_training: Annotated[Literal["game", "life"], About("end of an episode", "what is capped in training")]
    cap_terminates: Annotated[
        bool, About("end of an episode", "whether the cap counts as a true end: no bootstrap from there")
    ]

    pool_frames: Annotated[int, About("picture", "maximum over so many last frames of the repeat", "frames")]
    pool_on: Annotated[
        Literal["rgb", "gray"], About("picture", "maximum taken in colour or after the conversion to gray")
    ]
    missing_frames: Annotated[
        Literal["stale", "black"],
        About("picture", "what is pooled if the game ends within a repeat: frames of the step before, or black"),
    ]
    gray: Annotated[
        Literal["cv2", "luma_truncated", "ale"],
        About("picture", "0.299 R + 0.587 G + 0.114 B rounded (cv2) or cut down (luma), or the emulator's own gray"),
    ]
    resize: Annotated[Resize, About("picture", "how it is made small")]
    height: Annotated[int, About("picture", "rows", "pixels")]
    width: Annotated[int, About("picture", "columns", "pixels")]
    stack: Annotated[int, About("picture", "newest pictures shown together", "steps")]
    stack_padding: Annotated[
        Literal["repeat_first", "zeros_after", "zeros_before"],
        About(
            "picture", "how a new episode's stack is filled: the first picture everywhere, or black after or before it"
        ),
    ]

    reward_clip: Annotated[
        Literal["sign", "clip", "none"], About("reward", "of the sum over a repeat, in training only")
    ]

    gamma: Annotated[float, About("learning", "discount", "per step")]
    replay_capacity: Annotated[int, About("learning", "size of the replay", "transitions")]
    replay_start_steps: Annotated[int, About("learning", "time before the first update, of random actions", "steps")]
    batch_size: Annotated[int, About("learning", "transitions of an update")]
    update_every_steps: Annotated[int, About("learning", "time between updates", "steps")]
    target_update_steps: Annotated[int, About("learning", "time between copies to the target network", "steps")]

    epsilon_start: Annotated[float, About("exploration", "probability of a random action at first")]
    epsilon_end: Annotated[float, About("exploration", "and at last")]
    epsilon_decay_steps: Annotated[int, About("exploration", "length of the straight line between them", "steps")]
    epsilon_origin: Annotated[Literal["zero", "learning_start"], About("exploration", "where that line begins")]

    evaluate_every_steps: Annotated[int, About("evaluation", "time between evaluations", "steps")]
    evaluate_steps: Annotated[int, About("evaluation", "length of an evaluation", "steps")]
    evaluate_ends: Annotated[
        Literal["whole_episode", "cut"],
        About("evaluation", "whether the last episode is played out or left out of the mean"),
    ]
    evaluate_untrained: Annotated[bool, About("evaluation", "whether there is an evaluation before training")]
    evaluate_epsilon: Annotated[float, About("evaluation", "probability of a random action")]
    published_returns: Annotated[
        Literal["training", "evaluation"], About("evaluation", "what the published curves show")
    ]
    published_score: Annotated[Literal["best", "every iteration"], About("evaluation", "what is reported of them")]
    run_frames: Annotated[int, About("evaluation", "length of a run", "frames")]

    padding: Annotated[Literal["valid", "same"], About("network", "of the convolutions 32x8s4, 64x4s2, 64x3s1")]
    torso_initialisation: Annotated[
        Literal["he_uniform", "fan_in_uniform", "xavier_uniform", "variance_scaling"],
        About("network", "weights of the convolutions"),
    ]
    torso_bias: Annotated[Literal["zero", "fan_in_uniform"], About("network", "their biases")]
    dense_initialisation: Annotated[
        Literal["fan_in_uniform", "xavier_uniform", "variance_scaling"],
        About("network", "weights of the layer of 512 and of the head"),
    ]
    dense_bias: Annotated[Literal["zero", "fan_in_uniform"], About("network", "their biases")]

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
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("name", "about")}

    def change(self, name: str, about: str, **changes: Any) -> AtariProtocol:
        """A protocol that differs in some settings; it needs a name of its own, so that results are not mixed."""
        for setting in changes:
            if setting not in self.settings():
                raise SettingsError(f"there is no setting {setting!r}; {nearest(setting, self.settings())}")
        return dataclasses.replace(self, name=name, about=about, **changes)


PAPER = AtariProtocol(
    name="paper",
    about="Pitfall of Optimism, 30 no-ops; what it leaves unsaid as in the code base its settings repeat",
    frame_skip_min=4,
    frame_skip_max=4,
    sticky_probability=0.0,
    action_set="minimal",
    game_mode="default",
    no_op_min_frames=1,
    no_op_max_frames=30,
    fire_reset_training=True,
    fire_reset_evaluation=True,
    life_loss_training="ends_episode",
    life_loss_evaluation="ignored",
    cap_frames=108_000,
    cap_counts_training="life",
    cap_terminates=False,
    pool_frames=2,
    pool_on="rgb",
    missing_frames="stale",
    gray="cv2",
    resize="cv2_area",
    height=84,
    width=84,
    stack=4,
    stack_padding="repeat_first",
    reward_clip="sign",
    gamma=0.99,
    replay_capacity=1_000_000,
    replay_start_steps=50_000,
    batch_size=32,
    update_every_steps=4,
    target_update_steps=10_000,
    epsilon_start=1.0,
    epsilon_end=0.01,
    epsilon_decay_steps=250_000,
    epsilon_origin="zero",
    evaluate_every_steps=250_000,
    evaluate_steps=125_000,
    evaluate_ends="whole_episode",
    evaluate_untrained=False,
    evaluate_epsilon=0.001,
    published_returns="evaluation",
    published_score="best",
    run_frames=50_000_000,
    padding="valid",
    torso_initialisation="he_uniform",
    torso_bias="zero",
    dense_initialisation="fan_in_uniform",
    dense_bias="fan_in_uniform",
)

DQN_ZOO = AtariProtocol(
    name="dqn_zoo",
    about="DQN Zoo: 30 no-ops, a lost life ends the return but not the game",
    frame_skip_min=4,
    frame_skip_max=4,
    sticky_probability=0.0,
    action_set="minimal",
    game_mode="default",
    no_op_min_frames=1,
    no_op_max_frames=30,
    fire_reset_training=False,
    fire_reset_evaluation=False,
    life_loss_training="zero_discount",
    life_loss_evaluation="zero_discount",
    cap_frames=108_000,
    cap_counts_training="game",
    cap_terminates=False,
    pool_frames=2,
    pool_on="rgb",
    missing_frames="black",
    gray="luma_truncated",
    resize="pil_bilinear",
    height=84,
    width=84,
    stack=4,
    stack_padding="zeros_after",
    reward_clip="clip",
    gamma=0.99,
    replay_capacity=1_000_000,
    replay_start_steps=50_000,
    batch_size=32,
    update_every_steps=4,
    target_update_steps=10_000,
    epsilon_start=1.0,
    epsilon_end=0.01,
    epsilon_decay_steps=1_000_000,
    epsilon_origin="learning_start",
    evaluate_every_steps=250_000,
    evaluate_steps=125_000,
    evaluate_ends="cut",
    evaluate_untrained=True,
    evaluate_epsilon=0.001,
    published_returns="evaluation",
    published_score="every iteration",
    run_frames=200_000_000,
    padding="valid",
    torso_initialisation="fan_in_uniform",
    torso_bias="fan_in_uniform",
    dense_initialisation="fan_in_uniform",
    dense_bias="fan_in_uniform",
)

DOPAMINE = AtariProtocol(
    name="dopamine",
    about="Dopamine: sticky actions, no no-ops, only the end of the game ends an episode",
    frame_skip_min=4,
    frame_skip_max=4,
    sticky_probability=0.25,
    action_set="minimal",
    game_mode="default",
    no_op_min_frames=0,
    no_op_max_frames=0,
    fire_reset_training=False,
    fire_reset_evaluation=False,
    life_loss_training="ignored",
    life_loss_evaluation="ignored",
    cap_frames=108_000,
    cap_counts_training="game",
    cap_terminates=False,
    pool_frames=2,
    pool_on="gray",
    missing_frames="stale",
    gray="ale",
    resize="cv2_area",
    height=84,
    width=84,
    stack=4,
    stack_padding="zeros_before",
    reward_clip="clip",
    gamma=0.99,
    replay_capacity=1_000_000,
    replay_start_steps=20_000,
    batch_size=32,
    update_every_steps=4,
    target_update_steps=8_000,
    epsilon_start=1.0,
    epsilon_end=0.01,
    epsilon_decay_steps=250_000,
    epsilon_origin="learning_start",
    evaluate_every_steps=250_000,
    evaluate_steps=125_000,
    evaluate_ends="whole_episode",
    evaluate_untrained=False,
    evaluate_epsilon=0.001,
    published_returns="training",
    published_score="every iteration",
    run_frames=200_000_000,
    padding="same",
    torso_initialisation="variance_scaling",
    torso_bias="zero",
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


def find_protocol(name: str) -> AtariProtocol:
    """The protocol of this name."""
    if name not in PROTOCOLS:
        raise SettingsError(f"there is no protocol {name!r}; {nearest(name, PROTOCOLS)}")
    return PROTOCOLS[name]


def differences(*protocols: AtariProtocol) -> list[str]:
    """Settings in which they do not agree."""
    first, *rest = (p.settings() for p in protocols)
    return [name for name in first if any(other[name] != first[name] for other in rest)]


def about_settings() -> dict[str, About]:
    """What every setting is about, in the order of the record."""
    hints = get_type_hints(AtariProtocol, include_extras=True)
    return {name: hints[name].__metadata__[0] for name in hints if name not in ("name", "about")}
