"""Protocols as records: complete, consistent with the emulator's own registration, and documented."""

import dataclasses

import pytest
from protocol_page import PATH, page

from tremble.atari.protocol_sources import NOTES, note_of, source_of
from tremble.atari.protocols import (
    DOPAMINE,
    DQN_ZOO,
    PAPER,
    PAPER_STICKY,
    PAPER_V4,
    PROTOCOLS,
    about_settings,
    differences,
    find_protocol,
)
from tremble.atari.published_agents import PUBLISHED, published_agents
from tremble.hyperparameters import hyperparameter_tables
from tremble.settings import SettingsError


def test_records_cannot_be_changed_by_accident():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER.gamma = 0.9
    with pytest.raises(TypeError):
        PROTOCOLS["paper"] = DQN_ZOO


def test_every_setting_of_every_protocol_is_explained_and_has_a_source():
    settings = set(PAPER.settings())
    assert set(about_settings()) == settings
    for name, protocol in PROTOCOLS.items():
        assert protocol.name == name
        for setting in settings:
            assert len(source_of(protocol, setting)) > 10 and about_settings()[setting].text
        assert set(NOTES[name]) <= settings


def test_names_say_what_they_count():
    counts = {name: about.unit for name, about in about_settings().items() if isinstance(getattr(PAPER, name), int)}
    assert all(unit == "frames" for name, unit in counts.items() if name.endswith("_frames"))
    assert all(unit == "steps" for name, unit in counts.items() if name.endswith("_steps"))
    assert all(unit != "steps" or name == "stack" or name.endswith("_steps") for name, unit in counts.items())


def test_the_paper_has_the_same_values_as_its_column_of_hyperparameters():
    """The table of hyperparameters is kept twice: for agents as a column, for protocols here."""
    column = hyperparameter_tables()["atari"]
    assert (PAPER.batch_size, PAPER.gamma) == (column.batch_size, column.gamma)
    assert (PAPER.replay_capacity, PAPER.replay_start_steps) == (column.memory_size, column.start_steps)
    assert PAPER.update_every_steps == column.update_interval
    assert PAPER.target_update_steps == column.target_update_interval
    assert (PAPER.epsilon_start, PAPER.epsilon_end) == (column.epsilon_start, column.epsilon_end)
    assert PAPER.epsilon_decay_steps == column.epsilon_decay_steps
    pqr = next(row for row in published_agents("paper") if row.agent == "pqr")
    assert pqr.learning_rate == column.learning_rate and pqr.optimiser_epsilon == 0.01 / column.batch_size


def test_the_emulator_registers_what_the_variants_say():
    """ale-py's registration is an independent source for v0, v4 and NoFrameskip."""
    ale_py = pytest.importorskip("ale_py")
    import gymnasium

    gymnasium.register_envs(ale_py)

    def registered(name):
        kwargs = gymnasium.spec(name).kwargs
        return kwargs["frameskip"], kwargs["repeat_action_probability"]

    assert registered("PongNoFrameskip-v4") == (1, PAPER.sticky_probability)
    assert registered("PongNoFrameskip-v0") == (1, PAPER_STICKY.sticky_probability) == (1, DOPAMINE.sticky_probability)
    # The upper end of the emulator's range is exclusive.
    assert registered("Pong-v4") == ((PAPER_V4.frame_skip_min, PAPER_V4.frame_skip_max + 1), 0.0)
    assert gymnasium.spec("PongNoFrameskip-v4").kwargs["full_action_space"] is (PAPER.action_set == "full")


def test_units_agree_across_protocols():
    """DQN Zoo counts frames, Dopamine steps; both end an episode after half an hour of play at 60 frames a second."""
    for protocol in PROTOCOLS.values():
        assert protocol.cap_frames == 30 * 60 * 60
        assert protocol.evaluate_every_steps * protocol.frame_skip_max == 1_000_000
        assert protocol.evaluate_steps * protocol.frame_skip_max == 500_000
    assert DQN_ZOO.epsilon_decay_steps * 4 == 0.02 * 200_000_000
    assert DQN_ZOO.target_update_steps * 4 == 40_000


def test_differences_are_found():
    assert differences(PAPER, PAPER) == []
    assert differences(PAPER, PAPER_V4) == ["frame_skip_min"]
    assert differences(PAPER, PAPER_STICKY) == ["sticky_probability"]
    assert {"fire_reset_training", "life_loss_training", "resize", "stack_padding", "epsilon_origin"} <= set(
        differences(PAPER, DQN_ZOO)
    )
    assert "no_op_max_frames" in differences(DQN_ZOO, DOPAMINE) and "no_op_max_frames" not in differences(
        PAPER, DQN_ZOO
    )


def test_a_protocol_of_ones_own():
    mine = PAPER.change("mine", "no FIRE", fire_reset_training=False)
    assert mine.name == "mine" and differences(PAPER, mine) == ["fire_reset_training"]
    with pytest.raises(SettingsError, match="did you mean 'fire_reset_training'"):
        PAPER.change("mine", "a slip", fire_reset_trainin=False)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"frame_skip_min": 0}, "frame skip"),
        ({"frame_skip_min": 5}, "frame skip"),
        ({"no_op_min_frames": 31}, "no-ops"),
        ({"sticky_probability": 1.0}, "sticky_probability"),
        ({"pool_frames": 3}, "pool_frames"),
    ],
)
def test_impossible_protocols_are_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        PAPER.change("broken", "", **changes)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(SettingsError, match="did you mean 'dopamine'"):
        find_protocol("dopamin")
    with pytest.raises(SettingsError, match="did you mean 'gamma'"):
        source_of("paper", "gama")
    with pytest.raises(SettingsError, match="no agents"):
        published_agents("nobody")


def test_agents_exceptions_are_also_in_the_notes():
    """A protocol's value is that of most of its agents; a note names the others."""
    for row in PUBLISHED:
        protocol = find_protocol(row.protocol)
        for setting in ("replay_start_steps", "target_update_steps", "evaluate_epsilon"):
            if getattr(row, setting) != getattr(protocol, setting):
                assert note_of(protocol, setting), (row.agent, setting)
    assert {row.agent for row in published_agents("paper_v4")} == {"qrdqn", "dltv", "pqr"}


def test_the_page_shows_the_records_as_they_are():
    protocols = list(PROTOCOLS.values())
    assert PATH.read_text().endswith(page(protocols[:3], protocols[3:]))
