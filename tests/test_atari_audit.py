"""The audit: known recomputed values, verdicts by their definition, and brute force over the tables as text."""

import csv
from importlib.resources import files

import pytest

from tremble.studies.atari.audit import STUDY, sections
from tremble.studies.atari.claims import (
    AGENTS,
    NO_OPS,
    QUOTA,
    STICKY,
    cell_claims,
    judge,
    mark_claims,
    marks,
    percent,
    quota_claims,
    raw,
    summary,
    summary_claims,
    win_claims,
    wins,
    written_claims,
)
from tremble.studies.atari.figures import leaving_out
from tremble.studies.kit import Options


def rows(table):
    """The file itself, without pandas."""
    with (files("tremble.report") / "data" / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "table, repaired, agent, expected",
    [
        (NO_OPS, False, "dqn", (314, 55, 19, 0)),
        (NO_OPS, False, "qrdqn", (559, 118, 30, 47)),
        (NO_OPS, False, "iqn", (902, 131, 33, 50)),
        (NO_OPS, False, "rainbow", (1160, 154, 38, 52)),
        (NO_OPS, False, "pqr", (1122, 124, 33, 52)),
        (STICKY, True, "dqn", (401, 51, 15, 0)),
        (STICKY, True, "qrdqn", (561, 93, 27, 46)),
        (STICKY, True, "iqn", (940, 124, 32, 51)),
        (STICKY, True, "rainbow", (965, 123, 35, 53)),
        (STICKY, True, "pqr", (962, 123, 35, 51)),
        (STICKY, False, "iqn", (936, 115, 31, 50)),
    ],
)
def test_known_summaries(table, repaired, agent, expected):
    row = summary(table, repaired).loc[agent]
    assert (round(row["mean_percent"]), round(row["median_percent"])) == expected[:2]
    assert (row["above_human"], row["above_dqn"]) == expected[2:]


def test_summaries_by_brute_force():
    """The same from the text of the files, with nothing but floats and a sort."""
    for table in (NO_OPS, QUOTA):
        lines = rows(table)
        for agent in AGENTS[table]:
            normalised = sorted(
                100 * (float(r[agent]) - float(r["random"])) / (float(r["human"]) - float(r["random"]))
                for r in lines
                if r[agent]
            )
            n = len(normalised)
            row = summary(table).loc[agent]
            assert row["mean_percent"] == pytest.approx(sum(normalised) / n)
            middle = (normalised[(n - 1) // 2] + normalised[n // 2]) / 2
            assert row["median_percent"] == pytest.approx(middle)
            assert row["above_human"] == sum(float(r[agent]) > float(r["human"]) for r in lines if r[agent])


@pytest.mark.parametrize(
    "agent, mean, median",
    [
        ("qrdqn_zoo", 557, 121.5),
        ("qrdqn_zhang", 518, 80.6),
        ("quota", 376, 87.5),
        ("dltv", 591, 107.7),
        ("pqr", 1089, 129.3),
    ],
)
def test_known_values_at_40m(agent, mean, median):
    row = summary(QUOTA).loc[agent]
    assert round(row["mean_percent"]) == mean and round(row["median_percent"], 1) == median


@pytest.mark.parametrize(
    "table, first, second, expected",
    [
        (NO_OPS, "pqr", "qrdqn", (37, 2, 16)),
        (NO_OPS, "pqr", "iqn", (33, 1, 21)),
        (QUOTA, "pqr", "dltv", (27, 3, 18)),
        (QUOTA, "pqr", "qrdqn_zhang", (41, 1, 7)),
        (QUOTA, "pqr", "quota", (42, 1, 6)),
    ],
)
def test_known_wins(table, first, second, expected):
    found = wins(table, first, second)
    assert (found.wins, found.ties, found.losses) == expected
    pairs = [(float(r[first]), float(r[second])) for r in rows(table) if r[first] and r[second]]
    assert expected == (sum(a > b for a, b in pairs), sum(a == b for a, b in pairs), sum(a < b for a, b in pairs))


def test_one_game_is_half_of_the_mean():
    share = percent(NO_OPS).loc["VideoPinball", "pqr"]
    assert round(share) == 31844 and round(share / 55) == 579
    assert round(percent(NO_OPS).loc["Berzerk", "pqr"] / 55) == 100
    assert round(percent(NO_OPS).loc["Atlantis", "pqr"] / 55) == 99
    order, means = leaving_out(NO_OPS, 3)
    assert order[0] == "VideoPinball"
    assert means["pqr"].iloc[1] == pytest.approx((percent(NO_OPS)["pqr"].sum() - share) / 54)


def test_repairing_enduro_exchanges_two_cells_and_leaves_the_printed_table_alone():
    printed, mended = raw(STICKY), raw(STICKY, repaired=True)
    assert printed.loc["Enduro", "dqn"] == mended.loc["Enduro", "iqn"] == 2268.1
    assert printed.loc["Enduro", "iqn"] == mended.loc["Enduro", "dqn"] == 766.5
    assert (printed.drop(index="Enduro") == mended.drop(index="Enduro")).all().all()
    assert raw(NO_OPS, repaired=True).equals(raw(NO_OPS))


@pytest.mark.parametrize(
    "printed, recomputed, repaired, digits, expected",
    [
        (559, 558.99, None, 0, "holds"),
        (902, 901.53, None, 0, "holds"),
        (1121, 1121.73, None, 0, "holds, rounded otherwise"),  # cut off
        (562, 561.46, None, 0, "holds, rounded otherwise"),  # rounded up
        (124, 115.0, 124.04, 0, "holds once Enduro is repaired"),
        (21, 33, 33, 0, "fails"),
        (53, 52, 52, 0, "fails"),  # whole numbers have nothing to round
        (129.25, 129.257, None, 2, "holds, rounded otherwise"),
        (129.26, 129.257, None, 2, "holds"),
        (120.74, 121.533, None, 2, "fails"),
    ],
)
def test_judging_a_number(printed, recomputed, repaired, digits, expected):
    assert judge(printed, recomputed, repaired, digits) == expected


def verdicts(claims):
    return {(c.claim, c.where): c.verdict for c in claims}


def test_every_cell_of_the_summary_is_judged():
    found = summary_claims()
    assert len(found) == 40
    judged = verdicts(found)
    failing = {key[0] for key, verdict in judged.items() if verdict == "fails"}
    assert failing == {
        "DQN: games above human",
        "QR-DQN: games above human",
        "IQN: games above human",
        "Rainbow: games above human",
        "PQR: games above DQN",
    }
    # After the repair nothing in the sticky half fails.
    assert not any(verdict == "fails" for (_, where), verdict in judged.items() if where.endswith("sticky"))


def test_the_comparison_with_quota_cannot_be_reproduced():
    assert [c.verdict for c in quota_claims() if c.claim.endswith("mean")] == ["fails"] * 5
    near = {c.claim for c in quota_claims() if c.because}
    assert near == {"QUOTA: mean", "DLTV: mean"}


def test_wins_as_printed():
    assert {c.claim: c.verdict for c in win_claims()} == {
        "PQR beats QR-DQN": "only if ties count",
        "PQR beats IQN": "only if ties count",
        "QUOTA beats QR-DQN (Zhang)": "holds",
        "QR-DQN (zoo) beats QR-DQN (Zhang)": "holds",
        "PQR beats QUOTA": "holds",
        "PQR beats QR-DQN (Zhang)": "only if ties count",
        "PQR beats DLTV": "fails",
    }


def test_marks_against_a_loop_over_the_file():
    rivals = {("pqr_bold", NO_OPS): ("dqn", "qrdqn", "iqn"), ("pqr_asterisk", STICKY): ("iqn", "rainbow")}
    for (mark, table), names in rivals.items():
        found = marks(table, mark)
        for row in rows(table):
            best = max(float(row[name]) for name in names if row[name])
            assert found.loc[row["game"], "wins"] == (float(row["pqr"]) > best)
            assert found.loc[row["game"], "marked"] == (row[mark] == "1")
    told = {c.claim + c.where: c.because for c in mark_claims()}
    assert sum("PrivateEye" in text for text in told.values()) == 1
    assert any("not marked: Assault, Breakout" in text for text in told.values())
    assert any("not marked: FishingDerby" in text and "marked on a tie: Pitfall" in text for text in told.values())
    # Pitfall has no score of DLTV: QUOTA alone decides there.
    assert marks(QUOTA, "pqr_bold").loc["Pitfall", "best_rival"] == -30.7


def test_cells_that_cannot_be_right():
    found = {c.claim.split(":")[0]: c.verdict for c in cell_claims()}
    assert found == {
        "BeamRider": "contradicts itself",
        "Phoenix": "contradicts itself",
        "Tennis": "contradicts itself",
        "ChopperCommand": "impossible",
        "Krull": "impossible",
        "Boxing": "impossible",
        "Enduro": "fails",
    }


def test_text_claims_carry_their_numbers():
    told = {c.claim: c for c in written_claims("words")}
    gain = told["PQR achieves a 562 % gain in the mean over QR-DQN"]
    assert "562.7 percentage points" in gain.recomputed and "579 points" in gain.because
    assert "16 won, 3 tied, 36 lost" in told["PQR is comparable to Rainbow"].recomputed


@pytest.mark.long
def test_the_study_writes_its_report(tmp_path):
    options = Options(tmp_path, tmp_path, 1, 1000)
    report = STUDY.analyse({}, options)
    for claims in sections().values():
        assert all(claim.claim in report for claim in claims)
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"leaving_out.png", "games_no_ops.png", "games_sticky.png"}
    assert all(f"({name})" in report for name in pictures)
    with (tmp_path / "claims.csv").open() as file:
        assert len(list(csv.DictReader(file))) == sum(len(claims) for claims in sections().values())
