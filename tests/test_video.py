"""Videos: what they need, and the one line that says so where it is not there."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import tremble
from tremble.cli.main import main
from tremble.envs.encoding import UnsupportedSpaceError
from tremble.settings import SettingsError
from tremble.training.spec import CUSTOM, RunSpec
from tremble.viewer.video import Scene, open_for_pictures, picture_of, write_video

SMALL = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}


class Blind(gymnasium.Env):
    """An environment that draws nothing, and knows no render mode."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, True, False, {}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cartpole") / "run"
    tremble.train("qrdqn", "CartPole-v1", steps=30, out=directory, **SMALL)
    return directory


def error_of(arguments, capsys):
    """The one line of a command that fails."""
    with pytest.raises(SystemExit) as ending:
        main(["video", *map(str, arguments)])
    assert ending.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize("module", ["imageio", "imageio_ffmpeg", "pygame"])
def test_what_is_missing_is_one_line_with_the_extra(cartpole, tmp_path, monkeypatch, capsys, module):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    line = error_of([cartpole, "--out", tmp_path / "video.mp4"], capsys)
    assert "pip install 'tremble[video]'" in line and ("pygame" if module == "pygame" else module) in line
    assert not list(tmp_path.iterdir())


def test_an_environment_that_cannot_be_made_is_one_line(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(UnsupportedSpaceError, match=r"pip install 'tremble\[box2d\]'") as error:
        open_for_pictures(RunSpec("pqr", "LunarLander-v3", 100))
    assert len(str(error.value).splitlines()) == 1


def test_a_video_comes_without_warnings(cartpole, tmp_path, recwarn, caplog, capsys):
    import imageio.v2 as imageio

    main(["video", str(cartpole), "--max-steps", "3", "--out", str(tmp_path / "video.mp4")])
    assert not caplog.records and not [w for w in recwarn if "fork" in str(w.message)]
    frames = imageio.mimread(tmp_path / "video.mp4")
    assert len(frames) == 3 and frames[0].std() > 10
    assert "3 steps, return" in capsys.readouterr().out


def test_a_gif_needs_no_ffmpeg(cartpole, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    main(["video", str(cartpole), "--max-steps", "3", "--out", str(tmp_path / "video.gif")])
    assert (tmp_path / "video.gif").stat().st_size > 1000


def test_another_format_is_one_line(cartpole, tmp_path, capsys):
    assert "an .mp4 or a .gif file, not 'video.avi'" in error_of([cartpole, "--out", tmp_path / "video.avi"], capsys)


@pytest.mark.parametrize("env", ["nchain", f"{__name__}:Blind"])
def test_an_environment_that_draws_nothing_is_one_line(env):
    with pytest.raises(SettingsError, match=r"draws no pictures: 'rgb_array' is not among its render modes.* none"):
        open_for_pictures(RunSpec("pqr", env, 100))


def test_an_environment_given_as_an_object_is_one_line():
    with pytest.raises(SettingsError, match="given as an object"):
        open_for_pictures(RunSpec("pqr", CUSTOM, 100))


def test_an_environment_that_promises_pictures_and_gives_none():
    class Empty(Blind):
        def render(self):
            return None

    with pytest.raises(SettingsError, match="Empty draws no pictures: render"):
        picture_of(Empty())


def test_pictures_of_minatar():
    env = open_for_pictures(RunSpec("pqr", "minatar/breakout", 100))
    env.reset(seed=0)
    assert env.render().shape == (320, 320, 3)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1", "LunarLander-v3"])
def test_no_display_is_needed(env):
    """In a process of its own, without the variables of a desktop."""
    code = f"""
from tremble.training.spec import RunSpec
from tremble.viewer.video import open_for_pictures

env = open_for_pictures(RunSpec("pqr", {env!r}, 100))
env.reset(seed=0)
print(env.render().shape)
"""
    desktop = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "XDG_RUNTIME_DIR")
    bare = {name: value for name, value in os.environ.items() if name not in desktop}
    result = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].endswith(", 3)")


def test_predictions_that_are_not_finite(tmp_path):
    """Of an agent that has diverged: drawn as far as they can be."""
    atoms = np.array([[0.0, 1.0, np.inf], [np.nan, 2.0, 3.0]])
    scenes = [Scene(np.zeros((16, 16, 3), np.uint8), atoms, 0, 0.0)] * 2
    write_video(scenes, tmp_path / "video.gif")
    assert (tmp_path / "video.gif").stat().st_size > 1000
    lost = [Scene(scenes[0].frame, np.full((2, 3), np.nan), 0, 0.0)]
    with pytest.raises(SettingsError, match="none of the returns that the agent predicts is finite"):
        write_video(lost, tmp_path / "lost.gif")


def test_nothing_is_written_of_an_episode_in_another_format(tmp_path):
    with pytest.raises(SettingsError, match=r"an \.mp4 or a \.gif"):
        write_video([], tmp_path / "video.webm")
