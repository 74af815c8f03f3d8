"""The report of sweeps: numbers against other libraries, runs that are missing or failed, and what is refused."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats
from sweep_makers import HOSTILE, Ending, Shape, SweepMaker, cells_of, drawn_scores

from tremble import escape
from tremble.report.page import Folded, Items, Table, Text
from tremble.report.sweep_report import make_page, write_report
from tremble.report.sweep_table import sweep_table
from tremble.settings import SettingsError
from tremble.sweep_records import Cell, Trial

ENVS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")


def blocks_of(page):
    """All blocks of a page with the title of their section, also those in details."""

    def inside(blocks):
        for block in blocks:
            yield from inside(block.blocks) if isinstance(block, Folded) else [block]

    return [(section.title, block) for section in page.sections for block in inside(section.blocks)]


def tables_of(page, section):
    return [block for title, block in blocks_of(page) if title == section and isinstance(block, Table)]


def text_of(page, section=None):
    found = []
    for title, block in blocks_of(page):
        if section in (None, title):
            found += [block.text] if isinstance(block, Text) else block.items if isinstance(block, Items) else []
    return "\n".join(found)


def page_of(*sweeps):
    return make_page(sweep_table(sweeps))


def titles(page):
    return [section.title for section in page.sections]


@pytest.fixture
def maker(tmp_path):
    return SweepMaker(tmp_path / "sweep", cells_of(["pqr", "qrdqn"], ENVS), score=drawn_scores())


def test_means_and_intervals_are_scipys(maker):
    page, score = page_of(maker.make()), drawn_scores()
    [summary, _] = tables_of(page, "Scores")
    for row, cell in zip(summary.rows, maker.cells, strict=True):
        values = np.array([score(cell, seed) for seed in maker.seeds])
        low, high = stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values))
        assert row[3] == f"{values.mean():,.2f} [{low:,.2f}, {high:,.2f}]"
        half = stats.t.ppf(0.975, 4) * values.std(ddof=1) * np.sqrt(1 + 1 / 5)
        assert row[4] == f"[{values.mean() - half:,.2f}, {values.mean() + half:,.2f}]"
        assert row[2] == "5" and row[6:] == [f"{values.min():,.2f}", f"{values.max():,.2f}"]


def test_differences_are_paired_and_corrected(maker):
    page, score = page_of(maker.make()), drawn_scores()
    table = tables_of(page, "Differences, seed by seed")[0]
    p_values = []
    for row, env in zip(table.rows, ENVS, strict=True):
        ours, theirs = ([score(Cell("", agent, env), seed) for seed in maker.seeds] for agent in ("pqr", "qrdqn"))
        p_values.append(stats.ttest_rel(ours, theirs).pvalue)
        assert row[:4] == [env, "PQR", "QR-DQN", "5"]
        assert row[4].startswith(f"{np.mean(ours) - np.mean(theirs):,.2f}")
        assert (row[5] == "undecided") == (p_values[-1] >= 0.05)
    smallest = int(np.argmin(p_values))
    shown = table.rows[smallest][7]
    assert shown == "< 0.001" or float(shown) == pytest.approx(3 * p_values[smallest], abs=1e-3)


def test_summaries_over_environments_are_rliables(maker):
    metrics = pytest.importorskip("rliable.metrics")
    page, score = page_of(maker.make()), drawn_scores()
    scores = {
        agent: np.array([[score(Cell("", agent, env), seed) for env in ENVS] for seed in maker.seeds])
        for agent in ("pqr", "qrdqn")
    }
    every = np.concatenate(list(scores.values()))
    low, high = every.min(0), every.max(0)
    scaled = {agent: (values - low) / (high - low) for agent, values in scores.items()}
    table, improvement = tables_of(page, "Over all environments")
    for row, values in zip(table.rows, scaled.values(), strict=True):
        for cell, metric in zip(row[2:], ("iqm", "mean", "median", "optimality_gap"), strict=True):
            assert cell.startswith(f"{getattr(metrics, f'aggregate_{metric}')(values):.3f} [")
    assert improvement.rows[0][2] == f"{metrics.probability_of_improvement(*scaled.values()):.3f}"


def test_runs_without_a_result_are_named_and_counted(maker):
    label = maker.cells[0].label
    maker.endings = {
        (label, 0): Ending("diverged", "the loss is not finite"),
        (label, 1): Ending("failed", "MemoryError"),
        (label, 2): Ending("timed out", "60 minutes"),
        (label, 3): Ending("waiting"),
        (maker.cells[2].label, 4): Ending("running"),
    }
    page = page_of(maker.make())
    text = text_of(page, "What was run")
    assert "30 runs: 25 finished, 1 failed, 1 diverged, 1 timed out, 1 running, 1 waiting." in text
    for line in ("seed 0: diverged; the loss is not finite", "seed 1: failed; MemoryError", "seed 3: waiting"):
        assert f"PQR on {ENVS[0]}, {line}" in text
    [summary, _, filled] = tables_of(page, "Scores")
    assert [row[2] for row in summary.rows] == ["1 of 5", "5", "4 of 5", "5", "5", "5"]
    assert "one seed" in summary.rows[0][3]
    # The diverged run as the lowest score on its environment: mean of that and the one score that is left.
    score = drawn_scores()
    every = [score(cell, seed) for cell in maker.cells[:2] for seed in maker.seeds if cell.agent == "qrdqn" or seed > 3]
    assert filled.rows[0][4].startswith(f"{(min(every) + score(maker.cells[0], 4)) / 2:,.2f}")
    assert "Seeds are missing: PQR on CartPole-v1 (1 of 5)" in text_of(page, "Over all environments")
    differences = tables_of(page, "Differences, seed by seed")[0]
    assert differences.rows[0][3] == "1" and differences.rows[0][5:] == ["no verdict", "–", "–", "no verdict"]


def test_a_score_that_is_not_finite_counts_as_diverged(maker):
    score = drawn_scores()
    maker.score = lambda cell, seed: None if (cell, seed) == (maker.cells[0], 2) else score(cell, seed)
    page = page_of(maker.make())
    assert "PQR on CartPole-v1, seed 2: without a score" in text_of(page, "What was run")
    assert len(tables_of(page, "Scores")) == 3 and "1 without a score" in text_of(page)


def test_a_damaged_run_is_named_and_the_others_are_reported(maker):
    data = maker.make()
    (data.runs[0].directory / "final.jsonl").write_text("{]\n")
    (data.runs[1].directory / "config.json").write_text("[]")
    (data.runs[2].directory / "config.json").unlink()
    text = text_of(page_of(data), "What was run")
    assert "seed 0: without a score; cannot be read" in text and "seed 1: without a score; cannot be read" in text
    assert "seed 2: without a score; its directory is missing" in text


def test_a_directory_with_another_run_is_named(maker):
    data = maker.make()
    config = data.runs[0].directory / "config.json"
    config.write_text(config.read_text().replace('"agent": "pqr"', '"agent": "dqn"'))
    assert "its directory holds another run: dqn on CartPole-v1" in text_of(page_of(data), "What was run")


def test_figures_of_an_earlier_report_go_and_others_stay(maker, tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("curves-9", "mine"):
        (tmp_path / "figures" / f"{name}.svg").write_text("")
    write_report([maker.make()], tmp_path)
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert "mine" in names and "curves-9" not in names and "curves-1" in names


def test_one_seed_has_no_intervals_and_no_verdicts(maker, tmp_path):
    maker.seeds = (7,)
    write_report([maker.make()], tmp_path / "out")
    page = page_of(maker.make())
    assert "there are no intervals and no verdicts" in text_of(page, "How to read this")
    assert all("one seed" in row[3] and row[4] == "–" for row in tables_of(page, "Scores")[0].rows)
    assert all(row[5] == "no verdict" for row in tables_of(page, "Differences, seed by seed")[0].rows)
    assert all("[" not in cell for row in tables_of(page, "Over all environments")[0].rows for cell in row)


def test_one_agent_on_one_environment(tmp_path):
    page = page_of(SweepMaker(tmp_path, cells_of(["dqn"], ["CartPole-v1"])).make())
    assert "Differences, seed by seed" not in titles(page) and "Over all environments" not in titles(page)
    assert "Sensitivity to settings" not in titles(page) and "Search for settings" not in titles(page)


@pytest.mark.parametrize("state", ["waiting", "running", "failed"])
def test_a_sweep_without_results(tmp_path, state):
    maker = SweepMaker(tmp_path / "s", cells_of(["dqn", "pqr"], ENVS[:2]), seeds=(0, 1))
    maker.endings = {(cell.label, seed): Ending(state, "why") for cell in maker.cells for seed in (0, 1)}
    data = maker.make()
    path = write_report([data], tmp_path / "out")
    assert "No run has a score yet" in path.read_text()
    assert f"8 runs: 8 {state}." in text_of(page_of(data))


def test_tolerance_is_stated_where_seeds_suffice(tmp_path):
    cells, score = cells_of(["dqn"], ["CartPole-v1"]), drawn_scores()
    few = tables_of(page_of(SweepMaker(tmp_path / "a", cells, tuple(range(9)), score).make()), "Scores")[0]
    assert "95 % of runs reach" not in few.header
    ten = tables_of(page_of(SweepMaker(tmp_path / "b", cells, tuple(range(10)), score).make()), "Scores")[0]
    values = np.array([score(cells[0], seed) for seed in range(10)])
    factor = stats.nct.ppf(0.95, 9, stats.norm.ppf(0.95) * np.sqrt(10)) / np.sqrt(10)
    assert ten.rows[0][-1] == f"{values.mean() - factor * values.std(ddof=1):,.2f}"
    many = tables_of(page_of(SweepMaker(tmp_path / "c", cells, tuple(range(59)), score).make()), "Scores")[0]
    assert many.rows[0][-1] == f"{min(score(cells[0], seed) for seed in range(59)):,.2f}"


def test_unequal_numbers_of_runs_count_environments_the_same(maker):
    maker.endings = {(maker.cells[0].label, seed): Ending("failed", "disk") for seed in range(3)}
    page, score = page_of(maker.make()), drawn_scores()
    table = tables_of(page, "Over all environments")[0]
    assert table.rows[0][1] == "12 of 15"
    means = []
    for env in ENVS:
        runs = {a: [score(Cell("", a, env), s) for s in maker.seeds] for a in ("pqr", "qrdqn")}
        runs["pqr"] = runs["pqr"][3:] if env == ENVS[0] else runs["pqr"]
        low, high = min(map(min, runs.values())), max(map(max, runs.values()))
        means.append((np.mean(runs["pqr"]) - low) / (high - low))
    assert table.rows[0][3].startswith(f"{np.mean(means):.3f}")


def test_a_search_is_reported_whole(tmp_path):
    cells = cells_of(["pqr"], ["CartPole-v1"])
    trials = [
        Trial("pqr", "CartPole-v1", i, {"learning_rate": 0.001 * (i + 1)}, f"pqr | CartPole-v1, trial {i}", 10.0 + i)
        for i in range(5)
    ]
    trials[4] = Trial("pqr", "CartPole-v1", 4, {"learning_rate": 0.5}, "t", 14.0, "scored", True)
    trials.append(Trial("pqr", "CartPole-v1", 5, {"n_step": 3}, "t", None, "failed"))
    tuning = [(Cell("pqr | CartPole-v1, trial 0", "pqr", "CartPole-v1"), seed) for seed in (100, 101)]
    maker = SweepMaker(tmp_path, cells, trials=trials, tuning=tuning)
    maker.endings = {(tuning[0][0].label, 101): Ending("diverged", "infinite loss")}
    page = page_of(maker.make())
    [table] = tables_of(page, "Search for settings")
    assert [row[0] for row in table.rows] == ["4 ★ won", "3", "2", "1", "0", "5"]
    assert table.header == ["trial", "learning_rate", "n_step", "score", "state"]
    assert table.rows[-1] == ["5", "–", "3", "–", "failed"]
    text = text_of(page, "Search for settings")
    assert "seeds 100 and 101" in text and "0, 1, 2, 3 and 4" in text and "infinite loss" in text
    assert "5 runs: 5 finished." in text_of(page, "What was run")  # runs of the search do not count as results


def test_winners_of_searches_go_by_the_name_of_their_agent(tmp_path):
    cells = [
        Cell(f"{agent} | {env}", agent, env, {"learning_rate": rate})
        for env, rate in zip(ENVS, (0.1, 0.2, 0.3), strict=True)
        for agent in ("pqr", "dqn")
    ]
    table = sweep_table([SweepMaker(tmp_path, cells).make()])
    assert table.agents == ["PQR", "DQN"] and len(table.panels) == 3


def test_swept_settings_are_drawn_and_tabled(tmp_path):
    cells = [
        Cell(f"pqr {size} {n} | CartPole-v1", "pqr", "CartPole-v1", {"delta_0": size, "n_step": n})
        for size in (5.0, 50.0, 500.0)
        for n in (1, 3)
    ]
    score = drawn_scores()
    page = page_of(SweepMaker(tmp_path, cells, score=score).make())
    by_size, by_step = tables_of(page, "Sensitivity to settings")
    assert [row[1:3] for row in by_size.rows] == [["5.0", "10"], ["50.0", "10"], ["500.0", "10"]]
    values = [score(cell, seed) for cell in cells if cell.agent_options["n_step"] == 3 for seed in range(5)]
    assert by_step.rows[1][1:4] == ["3", "15", f"{np.mean(values):,.2f}"]
    names = sweep_table([SweepMaker(tmp_path, cells).make()]).agents
    assert names[0] == "PQR (delta_0=5, n_step=1)" and names[-1] == "PQR (delta_0=500, n_step=3)"


def test_calibration_is_that_of_the_files(maker):
    table = tables_of(page_of(maker.make()), "Predicted and observed returns")[0]
    score = drawn_scores()
    mean = np.mean([score(maker.cells[0], seed) for seed in maker.seeds])
    assert table.rows[0][3].startswith(f"{1.1 * mean:,.2f}") and table.rows[0][4].startswith(f"{mean:,.2f}")


def test_cost_and_commands(maker):
    data = maker.make()
    page = page_of(data)
    table = tables_of(page, "Cost")[0]
    seconds = [run.outcome.seconds for run in data.runs[:5]]
    assert table.rows[0][3] == f"{np.mean(seconds):.1f} s" and table.rows[0][5] == f"{sum(seconds) / 60:.1f} min"
    html = write_report([data], data.directory).read_text()
    assert "tremble sweep sweep.toml" in html
    assert "tremble train pqr --env CartPole-v1 --steps 10000 --seed 0" in html and "--final-episodes 10" in html


class Reader(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"style"} & set(self.open):
            self.text.append(data)


ELEMENTS = """html head meta title style body header h1 h2 p nav ol ul li a main section div table caption thead tbody
tr th td figure figcaption details summary pre code svg g path defs use text tspan clippath rect"""
ALLOWED = set(ELEMENTS.split())


def check_html(path: Path):
    """Nothing that runs or loads, unique ids, names for all figures; returns what was read."""
    page = Reader(path.read_text(encoding="utf-8"))
    assert set(page.tags) <= ALLOWED
    for tag, name, value in page.attributes:
        assert not name.startswith("on") and name != "src"
        if name.endswith("href"):
            assert value.startswith("#"), (tag, value)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    links = {value[1:] for _, name, value in page.attributes if name.endswith("href")}
    assert links <= set(ids)
    figures = page.tags.count("svg")
    assert figures == sum((tag, name, value) == ("svg", "role", "img") for tag, name, value in page.attributes)
    assert figures == sum((tag, name) == ("svg", "aria-label") and bool(v) for tag, name, v in page.attributes)
    assert page.tags.count("th") == sum((tag, name) == ("th", "scope") for tag, name, _ in page.attributes)
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]\b", path.read_text())  # placeholders of colours
    return page


def hostile_sweep(directory):
    cells = [
        Cell(f"{name} {i}", name, env, {name: HOSTILE[i - 1], "size": i}, {name: 1})
        for env in HOSTILE[:3]
        for i, name in enumerate(HOSTILE)
    ]
    cells = [Cell(c.label + c.env, c.agent, c.env, c.agent_options) for c in cells]
    cells += [Cell(f"more {c.label}", c.agent, c.env, c.agent_options | {"size": 9}) for c in cells]
    maker = SweepMaker(directory, cells, seeds=(0, 1, 2), score=drawn_scores())
    maker.endings = {(cell.label, 1): Ending("failed", name) for cell, name in zip(cells, HOSTILE, strict=False)}
    maker.versions = {name: name for name in HOSTILE}
    maker.revision = HOSTILE[0]
    maker.trials = [Trial(name, HOSTILE[0], i, {name: name}, name, 1.0) for i, name in enumerate(HOSTILE)]
    return maker.make()


def test_nothing_from_files_is_interpreted(tmp_path):
    data = hostile_sweep(tmp_path / "a")
    out = tmp_path / HOSTILE[2] / "out"
    page = check_html(write_report([data], out))
    shown = "".join(page.text)
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[4]):
        assert name in shown
    assert "\x1b" not in shown and "\u202e" not in shown
    markdown = (out / "report.md").read_text()
    assert "\x1b" not in markdown and "\u202e" not in markdown
    prose = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    assert set(re.findall(r"<[^>]*>", prose)) <= {"<details>", "</details>", "<summary>", "</summary>"}
    assert "](javascript" not in prose.replace("\\]", "")
    for file in (out / "figures").iterdir():
        found = {element.tag.rpartition("}")[2] for element in ElementTree.parse(file).iter()}
        assert {tag.lower() for tag in found} <= ALLOWED


def test_files_stand_on_their_own(maker, tmp_path):
    out = tmp_path / "out"
    page = check_html(write_report([maker.make()], out))
    text = " ".join("".join(page.text).split())
    markdown = (out / "report.md").read_text()
    for path in re.findall(r"\]\((figures/[^)]*)\)", markdown):
        svg = ElementTree.parse(out / path)
        assert svg.getroot().tag.endswith("svg") and "prefers-color-scheme" in (out / path).read_text()
    for title, block in blocks_of(page_of(maker.make())):
        if isinstance(block, Table):  # both have the same content
            for cell in block.rows[-1]:
                assert " ".join(cell.split()) in text, title
                assert escape.markdown(cell) in markdown, title
    rows = (out / "scores.csv").read_text().splitlines()
    assert len(rows) == 31 and rows[0].startswith("directory,environment,agent,seed,state,metric,score")


def test_equal_runs_give_equal_files(maker, tmp_path):
    data = maker.make()
    first, second = (write_report([data], tmp_path / name).read_text() for name in "ab")
    assert first == second


def atari(agents, games, protocol="paper", **options):
    return cells_of(agents, [f"atari/{game}" for game in games], env_options={"protocol": protocol}, **options)


def test_atari_is_normalised_by_the_human(tmp_path):
    maker = SweepMaker(tmp_path, atari(["pqr"], ["Pong", "Breakout"]), score=lambda cell, seed: 10.0 + seed)
    page = page_of(maker.make())
    # Pong: random -20.7, human 14.6. Breakout: 1.7 and 30.5. Mean score 12.
    mean = ((12 + 20.7) / 35.3 + (12 - 1.7) / 28.8) / 2
    assert tables_of(page, "Over all environments")[0].rows[0][3].startswith(f"{mean:.3f}")
    assert "human-normalised" in text_of(page, "Over all environments")


def test_published_scores_stand_only_beside_what_was_measured_like_them(tmp_path):
    shape = Shape(steps=12_500_000, evaluations=5, final_episodes=0, training_episodes=3)
    cells = atari(["qrdqn", "dqn"], ["Pong"], "dqn_zoo")
    page = page_of(SweepMaker(tmp_path / "a", cells, shape=shape, metric="best_evaluation").make())
    [table] = tables_of(page, "Published scores")
    assert [row[1] for row in table.rows] == ["QR-DQN", "DQN"] and "50M" in table.caption
    short = SweepMaker(tmp_path / "b", cells, shape=Shape(final_episodes=0), metric="best_evaluation").make()
    text = text_of(page_of(short), "Published scores")
    assert "it is for 50,000,000 frames, these runs have 40,000" in text
    other = SweepMaker(tmp_path / "c", atari(["qrdqn"], ["Pong"], "paper"), shape=shape, metric="best_evaluation")
    assert "No score under this protocol is known" in text_of(page_of(other.make()), "Published scores")


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(cells=atari(["pqr"], ["Pong"]) + atari(["dqn"], ["Breakout"], "dopamine")), "dopamine and paper"),
        (
            dict(cells=[Cell("a", "pqr", "X", env_options={"n": 1}), Cell("b", "dqn", "X", env_options={"n": 2})]),
            "different options of the environment",
        ),
        (
            dict(cells=[Cell("a", "pqr", "X"), Cell("b", "dqn", "X", run_options={"final_episodes": 3})]),
            "evaluation after training",
        ),
        (
            dict(cells=[Cell("a", "pqr", "X"), Cell("b", "dqn", "X", run_options={"evaluate_episodes": 3})]),
            "evaluate_episodes",
        ),
        (dict(cells=[Cell("a", "pqr", "X"), Cell("b", "dqn", "X", steps=500)]), "length of training"),
    ],
)
def test_scores_that_do_not_compare_are_refused(tmp_path, change, message):
    with pytest.raises(SettingsError, match=message):
        write_report([SweepMaker(tmp_path, **change).make()], tmp_path)


def test_two_metrics_are_refused(tmp_path):
    cells = cells_of(["pqr"], ["X"])
    sweeps = [SweepMaker(tmp_path / m, cells, metric=m).make() for m in ("final", "evaluations")]
    with pytest.raises(SettingsError, match="'evaluations' and by 'final'"):
        write_report(sweeps, tmp_path)
    with pytest.raises(SettingsError, match="did you mean 'optimal_share'"):
        write_report([SweepMaker(tmp_path, cells, metric="optimal_shares").make()], tmp_path)


def test_an_environment_may_be_swept_as_long_as_agents_meet(tmp_path):
    cells = [Cell(f"{agent} {n}", agent, "chain", env_options={"n": n}) for agent in ("pqr", "dqn") for n in (10, 20)]
    assert sweep_table([SweepMaker(tmp_path, cells).make()]).panels == ["chain (n=10)", "chain (n=20)"]


def test_two_versions_are_compared_seed_by_seed(tmp_path):
    cells = cells_of(["pqr"], ["CartPole-v1"])
    old = SweepMaker(tmp_path / "old", cells, revision="aaa", score=lambda cell, seed: 10.0 + seed).make()
    new = SweepMaker(tmp_path / "new", cells, revision="bbb", score=lambda cell, seed: 11.0 + seed).make()
    page = page_of(old, new)
    table = tables_of(page, "Differences, seed by seed")[0]
    assert table.rows[0][1:5] == ["PQR [old]", "PQR [new]", "5", "-1.00 [-1.00, -1.00]"]
    assert "two versions of the code" in text_of(page, "What was run")
    assert sum("revision" in row[1] and "5 runs" in row[1] for row in tables_of(page, "What was run")[0].rows) == 2


def test_directories_of_one_version_with_other_seeds_are_one_experiment(tmp_path):
    cells = cells_of(["pqr"], ["CartPole-v1"])
    first = SweepMaker(tmp_path / "a" / "s", cells, seeds=(0, 1)).make()
    second = SweepMaker(tmp_path / "b" / "s", cells, seeds=(2, 3, 4)).make()
    table = sweep_table([first, second])
    assert table.agents == ["PQR"] == table.merged and len(table.scores("PQR", "CartPole-v1")) == 5
    again = sweep_table([first, first])
    assert len(again.agents) == 2  # the same seeds twice are never one experiment


def test_a_run_that_is_there_twice_counts_once(tmp_path):
    maker = SweepMaker(tmp_path, [Cell("one", "pqr", "X"), Cell("two", "pqr", "X")], seeds=(0, 1))
    table = sweep_table([maker.make()])
    assert len(table.entries) == 2 and len(table.twice) == 2
    assert "which counts in their place" in text_of(page_of(maker.make()), "What was run")


def test_auto_is_one_metric_for_all_runs_of_an_environment(tmp_path):
    data = SweepMaker(tmp_path, cells_of(["pqr", "dqn"], ["X"]), metric="auto").make()
    (data.runs[0].directory / "final.jsonl").unlink()  # an evaluation after training that was not made
    table = sweep_table([data])
    assert table.metric("X") == "final" and table.seeds("PQR", "X") == "4 of 5"
    for run in data.runs:
        (run.directory / "final.jsonl").unlink(missing_ok=True)
        (run.directory / "evaluations.jsonl").unlink()
    assert sweep_table([data]).metric("X") == "optimal_share"


def test_many_environments_and_agents_fold(tmp_path):
    agents = [("pqr", {"delta_0": float(d)}) for d in range(8)] + [("dqn", {})]
    cells = [Cell(f"{a}{o}{e}", a, f"Env{e}", o) for e in range(13) for a, o in agents]
    data = SweepMaker(tmp_path / "s", cells, seeds=(0, 1), score=drawn_scores()).make()
    page = page_of(data)
    assert len([p for p in page.pictures() if p.name.startswith("curves")]) == 2
    assert any(isinstance(block, Folded) for section in page.sections for block in section.blocks)
    assert len(tables_of(page, "Scores")[0].rows) == 13 * 9
    check_html(write_report([data], tmp_path / "out"))


@pytest.mark.slow
def test_ten_thousand_runs(tmp_path):
    agents = [("pqr", {"delta_0": float(d)}) for d in range(34)] + [("qrdqn", {}), ("dqn", {})]
    cells = [Cell(f"{a}{json.dumps(o)}{e}", a, f"Env{e}", o) for e in range(56) for a, o in agents]
    data = SweepMaker(tmp_path / "s", cells, score=drawn_scores()).make()
    path = write_report([data], tmp_path / "out")
    assert len((path.parent / "scores.csv").read_text().splitlines()) == 10_081
