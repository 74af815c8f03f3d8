"""What both training loops offer to the code that drives them, and what they count in the same way."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from tremble.agent import Agent
from tremble.envs.encoding import Actions, Encoder
from tremble.envs.running_statistics import Statistics
from tremble.replay.frame_store import FrameStore
from tremble.training.checkpoint import Contents

DEFAULT_CHUNK = 1000
"""Steps between two reports of progress. Inside XLA also the longest compiled call; it changes no number."""


Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""A whole number in a file that counts something."""


class Episode(NamedTuple):
    """A training episode that ended."""

    step: int
    """Transitions made in the run when it ended."""
    total: float
    """Undiscounted return, in points of the game."""
    length: int

    def row(self) -> dict[str, Any]:
        """A row of ``episodes.jsonl``."""
        return {"step": self.step, "return": self.total, "length": self.length}


@dataclass(frozen=True)
class EpisodeState:
    """What an `EpisodeCounter` knows, as a checkpoint holds it."""

    totals: list[float | None]
    """None where a return is not finite, as everywhere in files."""
    lengths: list[int]
    recent: list[tuple[int, float | None, int]]


class EpisodeCounter:
    """Return and length of the episode under way in each of n environments, and the episodes that ended."""

    def __init__(self, n_envs: int):
        """Every environment is at the start of an episode."""
        self._totals, self._lengths = [0.0] * n_envs, [0] * n_envs
        self._recent: list[Episode] = []
        self.finished: list[Episode] = []
        """Episodes that ended since this list was last cleared."""

    def add(self, env: int, step: int, reward: float, over: bool) -> None:
        """Count transition number ``step`` (from 1) of the run, made in environment ``env``."""
        self._totals[env] += reward
        self._lengths[env] += 1
        if over:
            episode = Episode(step, self._totals[env], self._lengths[env])
            self.finished.append(episode)
            self._recent.append(episode)
            self._totals[env], self._lengths[env] = 0.0, 0

    def row(self, keep: bool = False) -> dict[str, Any]:
        """Mean return and length of the episodes that ended since the last call; None if there were none.

        With ``keep`` they are counted in the next row, too.
        """
        recent = self._recent
        if not keep:
            self._recent = []
        return {
            "return": float(np.mean([episode.total for episode in recent])) if recent else None,
            "episode_length": float(np.mean([episode.length for episode in recent])) if recent else None,
        }

    def restart(self) -> None:
        """Forget the episodes under way."""
        n_envs = len(self._totals)
        self._totals, self._lengths = [0.0] * n_envs, [0] * n_envs

    def state(self) -> EpisodeState:
        """JSON-ready; `finished` is not part of it."""
        totals, recent = [or_none(x) for x in self._totals], self._recent
        return EpisodeState(totals, self._lengths, [(e.step, or_none(e.total), e.length) for e in recent])

    def load(self, state: EpisodeState) -> None:
        """Continue from a `state`."""
        if not len(state.totals) == len(state.lengths) == len(self._totals):
            raise ValueError(f"episodes of {len(state.totals)} environments, and there are {len(self._totals)}")
        self._totals, self._lengths = [or_nan(x) for x in state.totals], list(state.lengths)
        self._recent = [Episode(step, or_nan(total), length) for step, total, length in state.recent]


def or_none(total: float) -> float | None:
    """A number as files hold it: None where it is not finite."""
    return total if math.isfinite(total) else None


def or_nan(total: float | None) -> float:
    """A number of a file."""
    return math.nan if total is None else total


class Loop(ABC):
    """A run in progress: `XlaLoop` compiles environment and agent together, `GymLoop` steps any environment."""

    agent: Agent
    encoder: Encoder
    """Turns observations of the environment into those of the agent."""
    actions: Actions
    """What the numbers of actions stand for in the environment."""
    frames_per_step: int = 1
    """Frames of the environment that a transition spans."""
    t: int
    """Transitions made."""
    not_restorable: str = ""
    """Why the environment can never be brought back to where it was; empty if it may be."""
    resumable: bool = True
    """Whether the state is that between two steps, so that it may be saved."""
    finished: list[Episode]
    """Episodes that ended since this list was last cleared."""

    @property
    @abstractmethod
    def params(self) -> Any:
        """The online parameters; the next `advance` may consume them."""

    @property
    @abstractmethod
    def replay_bytes(self) -> int:
        """Bytes that replay takes once it is full."""

    @property
    @abstractmethod
    def memory(self) -> str:
        """Number of transitions in replay and the bytes they take, in words."""

    @property
    def blocks(self) -> FrameStore | None:
        """Memory that is too large to be saved whole every time and is saved in blocks; None if there is none."""
        return None

    @abstractmethod
    def advance(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        """Step until at least ``until`` transitions are made, or ``stop`` returns true after a step (or chunk)."""

    @abstractmethod
    def record(self, final: bool = False) -> dict[str, Any]:
        """A row of the metrics: diagnosis of the learner now, and what happened since the last row.

        ``final``: a row at the end of the run that a longer run would not have. The next row, if the run is lengthened,
        counts from the row before it.
        """

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Pytrees and JSON-ready facts from which `load` continues; without `blocks`."""

    @abstractmethod
    def load(self, contents: Contents) -> bool:
        """Continue from a saved state; false if the environment could not be restored and starts new episodes."""

    def step_log(self) -> dict[str, np.ndarray]:
        """Arrays with one entry per step, by name; empty if steps are not logged."""
        return {}

    def snapshots(self) -> dict[str, np.ndarray]:
        """Arrays with one entry per row of the metrics, by name; empty if there are none."""
        return {}

    def statistics(self) -> Statistics:
        """Running statistics that the environment normalises by, of the first of several; empty if there are none."""
        return {}

    def close(self) -> None:  # noqa: B027 (nothing to free by default)
        """Free what the environments hold."""


def next_stop(t: int, steps: int, intervals: Sequence[int]) -> int:
    """The first step after ``t`` that is a multiple of one of ``intervals``, or the last step."""
    return min([steps, *((t // every + 1) * every for every in intervals if every)])
