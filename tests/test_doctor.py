"""The doctor: its arithmetic by hand, games played for real, and problems that it must see."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tremble.atari.checks import GameCheck, _rewound, _wrong, atari_versions, check_game, check_games, complaints
from tremble.atari.cost import run_cost
from tremble.atari.games import GAMES, PAPER_GAMES, id_of
from tremble.report.references import ATARI_57, load_reference
from tremble.settings import SettingsError
from tremble.training.machine import machine, versions


def test_games_are_the_same_everywhere():
    assert [id_of(rom).removeprefix("atari/") for rom in GAMES] == list(ATARI_57)
    assert [id_of(rom).removeprefix("atari/") for rom in PAPER_GAMES] == list(load_reference("atari55_noop_50m").index)


def test_versions_and_what_is_missing():
    found = versions() | atari_versions()
    assert found["jax"] and found["python"].startswith("3.") and found["ale-py"] and found["OpenCV"]
    assert complaints(found) == []
    (message,) = complaints(found | {"OpenCV": None})
    assert "OpenCV" in message and "tremble[atari]" in message


def test_the_machine(tmp_path):
    here = machine(tmp_path / "not" / "there" / "yet")
    assert here.cores >= 1 and 0 < here.free_memory <= here.memory
    assert here.free_disk == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert any("cpu" in device for device in here.devices)


def test_the_bill_by_hand():
    bill = run_cost("pqr", "paper", 50_000_000, frames_per_second=500.0)
    assert bill.steps == 12_500_000
    # One update every 4 steps once 50,000 are there.
    assert bill.updates == (12_500_000 - 50_000) // 4
    # A million items hold two stacks of four slots and three numbers of 4 bytes; 1.02 million pictures of 84 x 84.
    items = 1_000_000 * (2 * 4 * 4 + 3 * 4)
    pictures = 1_020_000 * (84 * 84 + 4)
    assert bill.replay_bytes == pytest.approx(items + pictures, rel=1e-4)
    assert bill.hours == pytest.approx(50_000_000 / 500 / 3600)
    assert run_cost("pqr", "paper", 50_000_000).hours is None


def test_a_short_run_needs_less_and_priorities_more():
    long, short = run_cost("pqr", "paper", 50_000_000), run_cost("pqr", "paper", 400_000)
    assert short.replay_bytes == pytest.approx(long.replay_bytes / 10, rel=0.01)
    assert (
        run_cost("rainbow", "dqn_zoo", 50_000_000).replay_bytes > run_cost("qrdqn", "dqn_zoo", 50_000_000).replay_bytes
    )
    with pytest.raises(SettingsError, match="did you mean 'dopamine'"):
        run_cost("pqr", "dopamin", 1000)
    with pytest.raises(SettingsError, match="speed above zero"):
        run_cost("pqr", "paper", 1000, frames_per_second=0.0)


@pytest.mark.parametrize("protocol", ["paper", "dqn_zoo", "dopamine"])
def test_a_game_is_played(protocol):
    pytest.importorskip("ale_py")
    check = check_game("breakout", protocol, frames=1200)
    assert check.problem == "" and check.frames == 1200 and check.n_actions == 4
    # A random player of Breakout loses lives fast; where a life is an episode there are several.
    assert (check.episodes > 1) == (protocol == "paper")


def test_all_games_are_asked_and_one_failure_does_not_stop_the_rest():
    pytest.importorskip("ale_py")
    seen = []
    checks = check_games("paper", frames=200, games=("pong", "chess", "skiing"), on_game=seen.append)
    assert [c.game for c in checks] == ["pong", "chess", "skiing"] and seen == checks
    assert [bool(c.problem) for c in checks] == [False, True, False]
    assert isinstance(checks[1], GameCheck) and "Chess" in checks[1].problem


def test_problems_are_seen():
    from tremble.atari.protocols import PAPER

    good = np.zeros((84, 84, 4), np.uint8)
    info = {"lives": 3}
    assert _wrong(good, 1.0, info, PAPER) == ""
    assert "observation" in _wrong(good[..., :3], 0.0, info, PAPER)
    assert "observation" in _wrong(good.astype(float), 0.0, info, PAPER)
    assert "reward" in _wrong(good, 7.0, info, PAPER) and "reward" in _wrong(good, np.nan, info, PAPER)
    assert "lives" in _wrong(good, 0.0, {}, PAPER)


def test_a_game_that_forgets_its_generator_is_noticed():
    """The real game with sticky actions, restored without its random numbers."""
    pytest.importorskip("ale_py")
    from tremble.atari.emulator import AtariGame

    game = AtariGame("breakout", "dopamine")
    game.reset(seed=1)
    for _ in range(30):
        game.step(1)
    actions = [2, 3] * 20
    assert _rewound(game, actions) == ""

    class Forgetful:
        def __init__(self):
            self.now = 0

        def save_state(self):
            return game.save_state()

        def load_state(self, state):
            self.now += 1
            game.load_state(state)
            game.np_random = np.random.default_rng(self.now)

        def step(self, action):
            return game.step(action)

    assert "does not go on" in _rewound(Forgetful(), actions)


@pytest.mark.long
def test_all_55_games():
    pytest.importorskip("ale_py")
    checks = check_games("paper", on_game=lambda check: None)
    assert len(checks) == 55 and [c for c in checks if c.problem] == []


@pytest.mark.long
def test_the_speed_is_measured_by_training():
    pytest.importorskip("ale_py")
    from tremble.atari.cost import measure_frames_per_second

    assert 10 < measure_frames_per_second("qrdqn", "paper", steps=400) < 100_000
    with pytest.raises(SettingsError, match="so few steps"):
        measure_frames_per_second("qrdqn", "paper", steps=200)


def test_the_directory_may_be_anywhere():
    assert machine(Path("runs")).free_disk > 0
