"""Published numbers: complete, with provenance, and inside the package."""

import numpy as np
import pytest

from tremble.report.references import (
    _DATA,
    ATARI_57,
    all_provenance,
    game_name,
    human_random,
    load_reference,
)
from tremble.settings import SettingsError


def test_every_file_says_where_it_comes_from():
    for name, about in all_provenance().items():
        assert about.keys() == {"title", "source", "units", "condition", "notes"}
        assert len(about["source"]) > 20 and about["units"] and about["condition"]
        assert len(load_reference(name)) > 0
    with pytest.raises(SettingsError, match="did you mean 'atari55_summary'"):
        load_reference("atari55_sumary")


def test_there_is_no_file_without_provenance():
    assert {file.name for file in _DATA.iterdir()} == {"provenance.json", *(f"{n}.csv" for n in all_provenance())}


def test_the_sets_of_games():
    atari_55 = tuple(game for game in ATARI_57 if game not in ("Defender", "Surround"))
    assert len(ATARI_57) == 57 and len(atari_55) == 55
    for table in ("atari55_noop_50m", "atari55_sticky_50m"):
        assert tuple(load_reference(table).index) == atari_55
    missing = set(atari_55) - set(load_reference("atari49_noop_40m").index)
    assert missing == {"Berzerk", "Hero", "Phoenix", "Skiing", "Solaris", "YarsRevenge"}
    reference = human_random()
    assert (reference["human"] > reference["random"]).all()


def test_games_are_the_emulators():
    """ale-py is an independent source for how games are spelt."""
    ale_py = pytest.importorskip("ale_py")
    import gymnasium

    gymnasium.register_envs(ale_py)
    assert all(f"ALE/{game}-v5" in gymnasium.registry for game in ATARI_57)


def test_human_and_random_of_the_papers_no_op_tables_are_those_of_dqn_zoo():
    for name in ("atari55_noop_50m", "atari49_noop_40m"):
        table = load_reference(name)
        assert (table[["random", "human"]] == human_random().loc[table.index]).all().all()


def test_the_sticky_table_differs_in_three_cells():
    table = load_reference("atari55_sticky_50m")[["random", "human"]]
    differs = (table != human_random().loc[table.index]).stack()
    assert list(differs[differs].index) == [("BeamRider", "random"), ("Phoenix", "human"), ("Tennis", "human")]


def test_marks_are_zero_or_one_and_dltv_has_one_gap():
    for name, bold, asterisks in (
        ("atari55_noop_50m", 33, 14),
        ("atari55_sticky_50m", 40, 22),
        ("atari49_noop_40m", 29, 0),
    ):
        table = load_reference(name)
        assert set(np.unique(table[["pqr_bold", "pqr_asterisk"]])) <= {0, 1}
        assert (table["pqr_bold"].sum(), table["pqr_asterisk"].sum()) == (bold, asterisks)
    assert list(load_reference("atari49_noop_40m")["dltv"].isna().pipe(lambda gap: gap[gap]).index) == ["Pitfall"]


@pytest.mark.parametrize(
    "text",
    [
        "BankHeist",
        "bank_heist",
        "bankheist",
        "BankHeistNoFrameskip-v4",
        "ALE/BankHeist-v5",
        "BankHeist-v0",
        "Bank Heist",
    ],
)
def test_every_spelling_of_a_game(text):
    assert game_name(text) == "BankHeist"


def test_spellings_do_not_collide_and_strangers_are_refused():
    assert len({game_name(game.lower()) for game in ATARI_57}) == 57
    assert game_name("up_n_down") == "UpNDown" and game_name("JamesbondNoFrameskip-v4") == "Jamesbond"
    with pytest.raises(SettingsError, match="did you mean 'Breakout'"):
        game_name("Brakeout")
    with pytest.raises(SettingsError, match="no human score"):
        game_name("CartPole-v1")
