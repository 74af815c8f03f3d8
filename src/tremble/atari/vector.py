"""Atari games stepped by ale-py's own threads, for protocols that it can express.

Emulation and preprocessing then run in C++ while the agent learns. What it cannot do: pool screens in colour, other
conversions to gray, PIL's resize, no-ops and FIRE as the code bases count them, lives, a random frame skip. Of the
published protocols Dopamine's remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from tremble.atari.emulator import clipped
from tremble.atari.games import rom_of
from tremble.atari.preprocessing import Stack
from tremble.atari.protocols import AtariProtocol, find_protocol
from tremble.envs.encoding import Actions, Encoder
from tremble.envs.gym import Observation, Outcome, Snapshots
from tremble.envs.running_statistics import Statistics
from tremble.settings import SettingsError

WANTED: dict[str, Any] = {
    "no_op_max_frames": 0,
    "fire_reset_training": False,
    "life_loss_training": "ignored",
    "pool_frames": 2,
    "pool_on": "gray",
    "gray": "ale",
    "missing_frames": "stale",
    "resize": "cv2_area",
}
"""What a protocol must say for ale-py to be able to do it. Clips, caps and the padding of stacks are done here."""


class AtariVector:
    """n games of a kind as an `Environment`; each episode is a function of its seed and its actions."""

    def __init__(self, game: str, n_envs: int, protocol: str | AtariProtocol = "dopamine", **changes: Any) -> None:
        """``changes`` are settings of the protocol that shall be others."""
        from ale_py.vector_env import AtariVectorEnv

        self.protocol = find_protocol(protocol, **changes)
        if unfit := why_not(self.protocol):
            raise SettingsError(
                f"ale-py's vector environment cannot play {game} under protocol {self.protocol.name}: "
                f"{', '.join(unfit)}. Leave out engine=vector: n_envs with --parallel steps any protocol in processes "
                "of its own"
            )
        self.name, self.n_envs = game, n_envs
        self._envs = AtariVectorEnv(
            rom_of(game),
            n_envs,
            autoreset_mode="NextStep",
            repeat_action_probability=self.protocol.sticky_probability,
            full_action_space=self.protocol.action_set == "full",
            frameskip=self.protocol.frame_skip_max,
            stack_num=1,
            img_height=self.protocol.height,
            img_width=self.protocol.width,
            noop_max=0,
            use_fire_reset=False,
            episodic_life=False,
            reward_clipping=False,
            max_num_frames_per_episode=2**30,
        )
        self.actions, self.not_restorable = Actions.numbered(len(self._envs.ale.get_action_set())), ""
        shape = (self.protocol.height, self.protocol.width, self.protocol.stack)
        self.encoder, self.stacked = Encoder.of(spaces.Box(0, 255, shape, np.uint8)), True
        self.frames_per_step = self.protocol.frame_skip_max
        self._cap_steps = self.protocol.cap_frames // self.protocol.frame_skip_max
        self.resetting = np.zeros(n_envs, bool)
        self._stacks = [Stack(self.protocol) for _ in range(n_envs)]
        self._seeds: list[int] = []
        self._episodes = [0] * n_envs
        self._actions: list[list[int]] = [[] for _ in range(n_envs)]
        self._sent = np.zeros(n_envs, np.int64)

    def _seed(self, i: int) -> int:
        """The seed of an environment's present episode; never 0, which would mean no seed."""
        return int(np.random.SeedSequence([self._seeds[i], self._episodes[i]]).generate_state(1)[0] % (2**31 - 1)) + 1

    def start(self, seeds: Sequence[int]) -> Observation:
        """Begin an episode in each, from its seed."""
        self._seeds, self._episodes = [int(seed) for seed in seeds], [0] * self.n_envs
        self._begin(np.ones(self.n_envs, bool))
        return self._seen()

    def _begin(self, where: np.ndarray) -> None:
        """New episodes in some of the environments, before ale-py would begin them itself at their next step."""
        chosen = np.flatnonzero(where)
        seeds = np.array([self._seed(int(i)) for i in chosen])
        obs, _ = self._envs.reset(seed=seeds, options={"reset_mask": where})
        for i in chosen:
            self._stacks[i].begin(np.array(obs[i, 0]))
            self._actions[i] = []

    def _seen(self) -> Observation:
        return Observation(np.stack([stack.show() for stack in self._stacks]), None)

    def send(self, actions: np.ndarray) -> None:
        """Give the actions; the games go on at once."""
        self._sent = np.asarray(actions, np.int64)
        self._envs.send(self._sent)

    def receive(self) -> Outcome:
        """The outcome of the actions sent."""
        score, terminated = self._wait()
        capped = np.array([len(actions) >= self._cap_steps for actions in self._actions]) & ~terminated
        truncated = capped & (not self.protocol.cap_terminates)
        terminated |= capped & self.protocol.cap_terminates
        reward = np.array([clipped(points, self.protocol.reward_clip) for points in score.tolist()])
        after, ended = self._seen(), terminated | truncated
        if ended.any():
            for k in np.flatnonzero(ended):
                self._episodes[k] += 1
            self._begin(ended)
        n = self.n_envs
        return Outcome(
            np.ones(n, bool), reward, terminated, truncated, after, self._seen(), np.zeros(n, bool), score, ended
        )

    def _wait(self) -> tuple[np.ndarray, np.ndarray]:
        """Points for the actions sent, and where a game is over; the new pictures are added to the stacks."""
        obs, score, terminated, _, _ = self._envs.recv()
        for i, picture in enumerate(np.array(obs[:, 0])):
            self._stacks[i].add(picture)
            self._actions[i].append(int(self._sent[i]))
        return np.array(score, np.float64), np.array(terminated, bool)

    def undo(self) -> bool:
        """As `Environment.undo`: not possible."""
        return False

    def snapshot(self) -> Snapshots | None:
        """The seed of each episode, and its actions so far."""
        return [
            (
                {"how": "vector", "seed": self._seeds[i], "episode": self._episodes[i]},
                {"actions": np.array(self._actions[i], np.int32)},
            )
            for i in range(self.n_envs)
        ]

    def rewind(self, snapshots: Snapshots) -> np.ndarray | None:
        """Go back there, by playing the episodes again; shorter ones wait in a state that is begun anew afterwards.

        The games step together, so each is played while the others, whose turn comes later or was before, do anything:
        the longest is first, and every other one is begun when so many steps are left as it has.
        """
        if any(facts.get("how") != "vector" for facts, _ in snapshots):
            return None
        self._seeds = [int(facts["seed"]) for facts, _ in snapshots]
        self._episodes = [int(facts["episode"]) for facts, _ in snapshots]
        self._begin(np.ones(self.n_envs, bool))
        histories = [arrays["actions"] for _, arrays in snapshots]
        lengths = np.array([len(history) for history in histories])
        for left in range(lengths.max(), 0, -1):
            if (due := lengths == left).any():
                self._begin(due)
            self.send(np.array([history[-left] if len(history) >= left else 0 for history in histories]))
            _, over = self._wait()
            if (over & (lengths >= left)).any():
                return None
            if over.any():
                self._begin(over)
        if (idle := lengths == 0).any():
            self._begin(idle)
        return self._seen().obs

    def statistics(self) -> Statistics:
        """Nothing is normalised."""
        return {}

    def set_statistics(self, arrays: Statistics) -> None:
        """Nothing is normalised."""

    def close(self) -> None:
        """Stop the threads."""
        self._envs.close()


def why_not(protocol: AtariProtocol) -> list[str]:
    """What ale-py's vector environment cannot do of a protocol; empty if it can do all."""
    unfit = [
        f"{name} is {getattr(protocol, name)!r}" for name, want in WANTED.items() if getattr(protocol, name) != want
    ]
    if protocol.frame_skip_min != protocol.frame_skip_max:
        unfit.append("the frame skip is random")
    return unfit
