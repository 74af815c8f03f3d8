"""The score of a run: worked by hand from files of a few lines."""

import json

import pytest

from tremble.records import CheckpointError
from tremble.report.run_score import METRICS, in_words, resolved_metric, score
from tremble.settings import SettingsError


def write(directory, log, rows, end="\n"):
    directory.mkdir(exist_ok=True)
    (directory / f"{log}.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + end)


def evaluation(step, mean, **more):
    return {"step": step, "mean": mean, "returns": [mean], "lengths": [3]} | more


def final(step, weights, mean):
    return evaluation(step, mean, weights=weights, weights_step=step // 2, discounted=[mean], truncated=[False])


@pytest.fixture
def run(tmp_path):
    write(tmp_path, "evaluations", [evaluation(10, 1.0), evaluation(20, 9.0), evaluation(30, 2.0)])
    write(tmp_path, "episodes", [{"step": i, "return": float(i), "length": 1} for i in range(1, 26)])
    write(tmp_path, "metrics", [{"step": i, "updates": 0.0, "episodes": 0.0, "optimal_share": i / 8} for i in (1, 2)])
    return tmp_path


@pytest.mark.parametrize(
    "metric, expected",
    [
        ("evaluations", 4.0),
        ("auto", 4.0),
        ("best_evaluation", 9.0),
        ("training", 24.0),  # the last three of 25 episodes: 23, 24, 25
        ("optimal_share", 3 / 16),
        ("final", None),
        ("best", None),
    ],
)
def test_scores_by_hand(run, metric, expected):
    assert score(run, metric) == (pytest.approx(expected) if expected is not None else None)


def test_the_evaluation_after_training_comes_first(run):
    rows = [final(30, "last", 5.0), final(30, "best", 8.0), final(60, "last", 6.0)]
    write(run, "final", rows)
    assert resolved_metric(run) == "final"
    # Of a run that was lengthened to 60 steps; its last weights are its best, so there is one row only.
    assert score(run) == score(run, "best") == 6.0
    write(run, "final", rows[:2])
    assert (score(run), score(run, "best")) == (5.0, 8.0)


@pytest.mark.parametrize(
    "logs, expected",
    [
        (["evaluations", "metrics", "episodes"], "evaluations"),
        (["metrics", "episodes"], "optimal_share"),
        (["episodes"], "training"),
    ],
)
def test_auto_takes_what_there_is(run, logs, expected):
    for log in {"evaluations", "metrics", "episodes"} - set(logs):
        (run / f"{log}.jsonl").unlink()
    assert resolved_metric(run) == expected
    assert score(run) == score(run, expected)


def test_what_is_not_finite_or_missing_is_none(tmp_path):
    assert all(score(tmp_path, metric) is None for metric in [*METRICS, "auto", "optimal_share"])
    write(tmp_path, "evaluations", [evaluation(1, 1.0), evaluation(2, None)])
    assert score(tmp_path, "evaluations") is None  # one evaluation diverged
    assert score(tmp_path, "best_evaluation") == 1.0
    write(tmp_path, "final", [final(2, "last", None)])
    assert score(tmp_path, "final") is None


def test_a_column_counts_from_its_first_number_on(tmp_path):
    rows = [{"step": i, "updates": 0.0, "episodes": 0.0, "loss": loss} for i, loss in enumerate([None, 2.0, 4.0])]
    write(tmp_path, "metrics", rows)
    assert score(tmp_path, "loss") == 3.0
    write(tmp_path, "metrics", [*rows, rows[0]])
    assert score(tmp_path, "loss") is None  # diverged after it began


def test_an_unknown_metric_names_the_nearest(run):
    with pytest.raises(SettingsError, match="did you mean 'optimal_share'"):
        score(run, "optimal_shar")
    with pytest.raises(SettingsError, match="did you mean 'evaluations'"):
        score(run, "evaluation")
    assert "optimal_share" in in_words("optimal_share")


def test_a_line_half_written_does_not_count(run):
    with (run / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 40, "mean": 1')
    assert score(run, "evaluations") == 4.0


@pytest.mark.parametrize("line", ["[1]", '{"step": "a"}', '{"step": 1, "mean": NaN}', "[" * 100_000, "\xff"])
def test_damaged_files_are_named(run, line):
    (run / "evaluations.jsonl").write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(CheckpointError, match=r"evaluations\.jsonl"):
        score(run, "evaluations")
