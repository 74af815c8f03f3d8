"""The command as a user meets it: in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tyro

from tremble.cli.console import console, types
from tremble.cli.main import Command, main

SMALL = ["--set", "n_quantiles=16", "--set", "widths=16,16", "--set", "batch_size=16", "--set", "start_steps=100"]


def tremble(*arguments, cwd, **options):
    command = [sys.executable, "-m", "tremble.cli.main", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """What a command that succeeds says, without a process of its own: starting one takes longer than the command."""

    def say(*arguments: str, width: int = 200) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(console, "width", width)
        try:
            main(list(arguments))
        except SystemExit as ending:  # --help ends like this
            assert ending.code in (0, None)
        return capsys.readouterr().out

    return say


def test_help_teaches(said):
    text = said("--help")
    assert all(word in text for word in ("train", "study", "demo", "list"))
    assert "--budget-minutes" in said("study", "--help")


def test_list(said):
    text = said("list")
    assert all(word in text for word in ("pqr", "p_dltv", "nchain-readings", "nchain"))
    assert "criterion.delta_0" in said("list", "--settings", "pqr")


@pytest.mark.parametrize("width", [80, 120])
def test_everything_listed_has_a_line_about_it(said, monkeypatch, width):
    from tremble.cli import list as listing

    for title, names in listing._sections():
        assert all(len(line) > 10 for line in names.values()), title
        assert len(set(names.values())) == len(names), "no two lines are the same"
    text = said("list", width=width)
    assert max(map(len, text.splitlines())) <= width
    for title in ("agents", "hyperparameters", "environments", "criteria", "representations", "optimisers", "studies"):
        assert f"\n{title}\n" in f"\n{text}"
    assert "57 games of Atari (`tremble list atari`)" in text


def test_list_of_one_section_or_of_what_has_a_text(said):
    from tremble.presets import PRESETS

    names = [line.split()[0] for line in said("list", "agents").splitlines()[1:] if line.strip()]
    assert names == list(PRESETS)
    text = said("list", "breakout")
    assert "minatar/breakout" in text and "atari/Breakout" in text and "tremble/MinAtar-Breakout-v0" in text
    assert not [line for line in text.splitlines() if "nchain" in line]
    assert "CartPole-v1" in said("list", "gymnasium")


def test_environments_of_others_have_a_line_too(monkeypatch):
    from tremble.envs import registry
    from tremble.worlds.probes import ActionChoice

    for known in ("_JAX_ENVS", "_ABOUT"):
        monkeypatch.setattr(registry, known, dict(getattr(registry, known)))
    registry.register_jax_env("told", ActionChoice, "[red] two actions")
    registry.register_jax_env("untold", "their.module:World", size=3)
    lines = registry.about_jax_envs()
    assert (lines["told"], lines["untold"]) == ("[red] two actions", "of their.module:World")


@pytest.mark.parametrize("width", [80, 120])
def test_settings_have_value_meaning_range_and_source(said, width):
    text = said("list", "--settings", "pqr", "--set", "delta_0=50", width=width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    at = next(i for i, line in enumerate(lines) if line.startswith("criterion.delta_0 = 50.0"))
    assert "yours: delta_0=50" in lines[at] and "Size of the perturbation" in lines[at + 1]
    assert "(a number, at least 0)" in lines[at + 1]
    words = " ".join(text.split())
    assert "criterion_for = both default: Agent Where the criterion applies" in words
    assert "(one of both, behaviour, target)" in words and "(true or false)" in words
    assert "learning.batch_size = 64 table: nchain" in words and "(a whole number, between 1 and 65536)" in words


def test_every_setting_of_every_agent_has_a_meaning():
    """Beside convolutions, whose fields are those of the network."""
    from tremble.cli.setting_help import settings_help
    from tremble.presets import PRESETS, make
    from tremble.settings import describe

    for name in PRESETS:
        agent = make(name, "control")
        words = settings_help(agent)
        assert describe(agent).keys() <= words.keys() and all(help.meaning for help in words.values()), name
        assert all(words[setting].allowed for setting in describe(agent)), name


def test_the_meaning_of_a_field_of_ones_own():
    import equinox as eqx

    from tremble.cli.setting_help import settings_help
    from tremble.criteria import RiskMeasure

    class Mine(RiskMeasure):
        bare: float = 1.0
        told: int | None = eqx.field(static=True, default=None)
        """Over
        two lines."""

        def measure(self, dist):
            return dist.mean()

    words = settings_help(Mine())
    assert (words["bare"].meaning, words["bare"].allowed) == ("", "a number")
    assert (words["told"].meaning, words["told"].allowed) == ("Over two lines.", "a whole number, or none")


def test_list_explains_a_value(said):
    text = said("list", "--settings", "pqr", "--explain", "learning_rate")
    assert "optimiser.learning_rate of pqr (nchain)" in text
    assert [line.split("│")[1].strip() for line in text.splitlines() if "│" in line] == ["default", "table"]
    arguments = ("--hyperparameters", "atari", "--protocol", "dqn_zoo", "--set", "learning_rate=0.5")
    text = said("list", "--settings", "rainbow", "--explain", "learning_rate", *arguments)
    shown = [[cell.strip() for cell in line.split("│")[1:4]] for line in text.splitlines() if "│" in line]
    assert shown == [
        ["default", "5e-05", "Adam"],
        ["table", "5e-05", "atari under dqn_zoo"],
        ["published", "6.25e-05", "google-deepmind/dqn_zoo: dqn_zoo/rainbow/run_atari.py"],
        ["yours", "0.5", "learning_rate=0.5"],
    ]


def test_protocols(said):
    text = said("protocols")
    assert all(word in text for word in ("paper", "dqn_zoo", "dopamine", "≠ sticky_probability", "  cap_frames"))
    few = said("protocols", "--differences", "--variants")
    assert "cap_frames" not in few and "paper_v4" in few and "≠ frame_skip_min" in few
    one = said("protocols", "dqn_zoo")
    assert "dqn_zoo/processors.py" in one and "201 quantiles" in one


def test_doctor(said):
    text = said("doctor")
    assert "LunarLander" in text and text.count("installed") == 7 and "pip install" not in text
    assert "jaxlib" in text and "cores, memory" in text and "all is well" in text


def test_doctor_says_what_is_missing_and_what_it_is_for(said, monkeypatch):
    for module in ("imageio", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    lines = said("doctor").splitlines()
    assert any("video" in line and "missing: imageio" in line for line in lines)
    assert any("tracking" in line and "missing: wandb" in line for line in lines)
    assert "for what is missing: pip install 'tremble[video,tracking]'" in lines


@pytest.mark.long
def test_doctor_of_atari(tmp_path):
    """All games, really played; and a study that no disk has room for is a problem, not a crash."""
    arguments = ("doctor", "--atari", "--jobs", "1", "--frames-per-second", "400", "--frames", "4000000")
    result = tremble(*arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "55 of 55 games play as they should" in result.stdout and "165 runs, 1 at a time" in result.stdout
    result = tremble("doctor", "--atari", "--jobs", "100000", cwd=tmp_path)
    assert result.returncode == 1 and "problem: 165 replays at a time need" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["protocols", "dopamin"], "did you mean 'dopamine'"),
        (["train", "pqrr"], "did you mean 'pqr'"),
        (["train", "pqr", "--set", "detla_0=3"], "did you mean 'delta_0'"),
        (["train", "pqr", "--env", "nchian"], "did you mean 'nchain'"),
        (["train", "pqr", "--env", "Pendulum-v1"], "its actions are continuous"),
        (["train", "pqr", "--env", "CartPole-v1", "--hyperparameters", "contrl"], "did you mean 'control'"),
        (["train", "pqr", "--threads", "0"], "--threads must be at least 1, got 0"),
        (["resume", "nothing"], "no run to resume"),
        (["evaluate", "nothing"], "no weights"),
        (["list", "--settings", "pqr", "--explain", "learning_rte"], "did you mean 'learning_rate'"),
        (["list", "--explain", "learning_rate"], "--explain needs an agent"),
        (["list", "--settings", "pqrr"], "did you mean 'pqr'"),
        (["list", "enviroments"], "did you mean 'environments'"),
        (["list", "[red]"], "nothing here is called '[red]'"),
        (["study", "json:loads"], "json:loads is no study"),
        (["list", "--settings", "pqr", "--protocol", "paper"], "'nchain' has none"),
        (["study", "nchain-count"], "did you mean 'nchain-counts'"),
        (["study", "nchain-counts", "--report-only"], "no finished runs"),
    ],
)
def test_mistakes_are_one_clear_message(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 1
    errors = capsys.readouterr().err
    assert message in " ".join(errors.split()) and "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["trian", "pqr"], "there is no command 'trian'; did you mean 'train'?"),
        (["resme", "runs/x"], "did you mean 'resume'?"),
        (["xyzzy"], "choose from: compare, curves, demo"),
        (["train", "pqr", "--stepz", "3"], "--steps"),
        (["train"], "agent"),
    ],
)
def test_a_command_line_that_is_none_ends_with_another_code(capsys, arguments, message):
    """So that a script notices, and can tell it from a run that failed."""
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    assert ending.value.code == 2
    said = capsys.readouterr()
    assert message in " ".join((said.err + said.out).split()) and "Traceback" not in said.err


def test_no_command_at_all_shows_what_there_is(capsys):
    with pytest.raises(SystemExit) as ending:
        main([])
    assert ending.value.code == 2 and "doctor" in capsys.readouterr().out


@pytest.mark.slow
def test_a_process_of_its_own(tmp_path):
    assert "nchain-readings" in tremble("list", cwd=tmp_path).stdout
    result = tremble("train", "pqrr", cwd=tmp_path)
    assert result.returncode == 1 and "did you mean 'pqr'" in result.stderr and "Traceback" not in result.stderr
    assert "compiling" not in result.stdout  # no trace of a progress bar that never moved


@pytest.mark.long
def test_train_writes_a_run(tmp_path):
    result = tremble("train", "pqr", "--steps", "600", "--out", "mine", *SMALL, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    names = {p.name for p in (tmp_path / "mine").iterdir()}
    assert names - {"episodes.jsonl"} == {  # whether an episode ends so soon depends on the processor's last bits
        "config.json",
        "metrics.jsonl",
        "weights.safetensors",
        "checkpoints",
        "steps.safetensors",
        "timing.jsonl",
        "lock-1.json",
    }
    assert "optimal actions" in result.stdout


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    """A small run on a Gymnasium environment, by the command line."""
    directory = tmp_path_factory.mktemp("cartpole")
    arguments = ["--env", "CartPole-v1", "--steps", "400", "--threads", "1", "--out", "mine", *SMALL]
    return tremble("train", "pqr", *arguments, cwd=directory), directory


@pytest.mark.slow
def test_train_on_a_gymnasium_environment(cartpole):
    result, directory = cartpole
    assert result.returncode == 0, result.stderr
    assert "replay: 400 transitions, up to" in result.stdout and "Evaluations, 10 episodes each" in result.stdout
    assert len((directory / "mine" / "evaluations.jsonl").read_text().splitlines()) == 10


@pytest.mark.slow
def test_resume_of_a_finished_run_changes_nothing(cartpole):
    _, directory = cartpole
    names = ("metrics.jsonl", "config.json")
    before = [(directory / "mine" / name).read_bytes() for name in names]
    assert json.loads(before[1])["made_with"][0]["threads"] == 1
    result = tremble("resume", "mine", cwd=directory)
    assert result.returncode == 0 and "the run is finished; tremble resume mine --steps N lengthens it" in result.stdout
    assert [(directory / "mine" / name).read_bytes() for name in names] == before, "its number of threads too"


@pytest.mark.slow
def test_evaluate_and_video(cartpole):
    _, directory = cartpole
    result = tremble("evaluate", "mine", "--episodes", "5", "--criterion", "own", "--epsilon", "0.001", cwd=directory)
    assert result.returncode == 0, result.stderr
    assert (
        "Calibration: share of episodes" in result.stdout
        and (directory / "mine" / "evaluation-own-e0.001-s0.json").exists()
    )
    result = tremble("video", "mine", "--max-steps", "8", "--out", "episode.mp4", cwd=directory)
    assert result.returncode == 0, result.stderr
    import imageio.v2 as imageio

    frames = imageio.mimread(directory / "episode.mp4")
    assert len(frames) == 8 and frames[0].std() > 10


@pytest.mark.slow
def test_a_full_disk_is_one_message_and_loses_nothing(tmp_path):
    """A real one: a file system of 200 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        arguments = ["--env", "CartPole-v1", "--steps", "20000", "--out", disk / "run", *SMALL]
        result = tremble("train", "pqr", *map(str, arguments), cwd=tmp_path)
        assert result.returncode == 1 and "No space left" in result.stderr and "Traceback" not in result.stderr
        from tremble.training.run_directory import RunFiles

        contents = RunFiles(disk / "run").described()
        assert contents is not None and contents.meta["facts"]["t"] >= 1000, "what was saved before is whole"
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_ctrl_c_keeps_the_run_and_says_so(tmp_path):
    arguments = ["train", "pqr", "--steps", "2000000", "--out", "long", *SMALL]
    process = subprocess.Popen(
        [sys.executable, "-m", "tremble.cli.main", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TREMBLE_SAVE_SECONDS": "0.5"},
    )
    states = tmp_path / "long" / "checkpoints"
    deadline = time.monotonic() + 240
    while not list(states.glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert list(states.glob("step-*")), "saved while running"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in out and "Traceback" not in err
    assert list(states.glob("step-*"))


@pytest.mark.long
def test_a_study_from_end_to_end_and_again(tmp_path):
    arguments = ("study", "nchain-counts", "--quick", "--steps", "1000", "--seeds", "2")
    first = tremble(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr + first.stdout
    out = tmp_path / "runs" / "nchain-counts-quick"
    names = {p.name for p in out.iterdir()}
    assert names == {"report.md", "counts.png", "counts.svg", "counts.csv", "curves.csv", "sweep.json", "workers.log"}
    report = (out / "report.md").read_text()
    assert report.startswith("> **This is not a result.**") and "no verdict" in report and "15,142" in report
    rows = (out / "counts.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * 2
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs" / "store").rglob("weights.safetensors")}
    assert len(stamps) == 8
    second = tremble(*arguments, "--report-only", cwd=tmp_path)
    assert second.returncode == 0 and (out / "report.md").read_text() == report
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps, "nothing was trained again"


@pytest.mark.parametrize("text", ["1e5", "100_000", "100000"])
def test_whole_numbers_of_every_command(text):
    for command in (
        "train pqr --steps",
        "train pqr --evaluate-every",
        "study minatar --steps",
        "evaluate x --episodes",
    ):
        *words, name = command.split()
        parsed = tyro.cli(Command, args=[*words, name, text], registry=types)
        assert getattr(parsed, name.strip("-").replace("-", "_")) == 100_000


@pytest.mark.parametrize("text", ["1.5", "many", "1e400", "nan", "1e-3"])
def test_what_is_no_whole_number_is_one_message(text, capsys):
    with pytest.raises(SystemExit) as ending:
        main(["train", "pqr", "--steps", text])
    assert ending.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"{text!r} is not a whole number: write 100000, 100_000 or 1e5" in said
