"""Plausible mistakes, what the library says about each, and the page that lists them.

    python -m tests.mistakes        write docs/mistakes.md anew

`tests/test_mistakes.py` runs every mistake and compares its message with the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "mistakes.md"
SMALL = "--set n_quantiles=4 --set widths=8 --set batch_size=4 --set start_steps=20"
OWN = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Base(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), self.info()

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), self.reward(), self.t >= 30, False, self.info()

    def reward(self):
        return 1.0

    def info(self):
        return {}


class NanReward(Base):
    def reward(self):
        return float("nan") if self.t == 20 else 1.0


class Broken(Base):
    def reward(self):
        if self.t == 20:
            raise RuntimeError("the simulator crashed")
        return 1.0


class NothingAllowed(Base):
    def info(self):
        return {"action_mask": np.zeros(2, np.int8)}


class WrongMask(Base):
    def info(self):
        return {"action_mask": np.ones(3, np.int8)}


class WrongShape(Base):
    def step(self, action):
        return np.zeros(3, np.float32), 1.0, False, False, {}


class NoObservation(Base):
    observation_space = spaces.Text(10)
"""


GOOD = 'agents = ["pqr"]\nenvs = ["CartPole-v1"]\nsteps = 100\n'
SWEEPS = {
    "good": GOOD,
    "step": GOOD.replace("steps", "step"),
    "agent": GOOD.replace("pqr", "pqrr"),
    "env": GOOD.replace("CartPole-v1", "Pendulum-v1"),
    "grid": GOOD + "[grid]\ndleta_0 = [5, 50]\n",
    "search": GOOD + "[search]\nseeds = [1]\nspace.gamma = [0.9, 0.99]\n",
    "space": GOOD + "[search]\nspace.gamma = { low = 0.99, high = 0.9 }\n",
    "callback": GOOD + 'callback = "own:missing"\n',
    "track": GOOD + 'track = ["tensorbord"]\n',
    "several": GOOD.replace("CartPole-v1", "Pendulum-v1") + 'callback = "own:missing"\n',
    "broken": "agents = [",
}
"""Sweep files by name; all but the first are wrong."""


@dataclass(frozen=True)
class Mistake:
    """A command, or a line of Python, and a part of what must be said about it."""

    what: str
    said: str
    """A regular expression that the message must match."""
    code: int = 1
    """How the command must end."""

    @property
    def python(self) -> bool:
        """Whether it is a line of Python."""
        return not self.what.startswith("tremble ")


COMMANDS = (
    Mistake("tremble trian pqr", r"did you mean.*train|perhaps.*train", 2),
    Mistake("tremble train", r"agent", 2),
    Mistake("tremble train pqrr", r"no agent 'pqrr'; did you mean 'pqr'"),
    Mistake("tremble train pqr --env CartPol-v1", r"CartPole-v1"),
    Mistake("tremble train pqr --env nchian", r"did you mean 'nchain'"),
    Mistake("tremble train pqr --env Pendulum-v1", r"continuous"),
    Mistake("tremble train pqr --env MiniGrid-Empty-5x5-v0", r"PACKAGE:MiniGrid-Empty-5x5-v0"),
    Mistake("tremble train pqr --env own:Missing", r"no attribute 'Missing'"),
    Mistake("tremble train pqr --env missing_module:Env", r"No module named 'missing_module'"),
    Mistake("tremble train pqr --env atari/Pongg", r"Pong"),
    Mistake("tremble train pqr --env own:NoObservation", r"Text.*not supported"),
    Mistake("tremble train pqr --steps ten", r"ten", 2),
    Mistake("tremble train pqr --steps 1.5", r"1\.5", 2),
    Mistake("tremble train pqr --steps -5", r"steps must be at least 1"),
    Mistake("tremble train pqr --steps 0", r"steps must be at least 1"),
    Mistake("tremble train pqr --seed -1", r"seed must be at least 0"),
    Mistake("tremble train pqr --sed 1", r"--seed", 2),
    Mistake("tremble train pqr --set delta=5", r"no setting 'delta'; did you mean"),
    Mistake("tremble train pqr --set delta_0", r"write name=value"),
    Mistake("tremble train pqr --set delta_0=abc", r"delta_0 must be a number"),
    Mistake("tremble train pqr --set gamma=1.5", r"gamma must be between 0 and 1"),
    Mistake("tremble train pqr --set learning_rate=nan", r"learning_rate must be"),
    Mistake("tremble train pqr --set memory_size=1e12", r"memory_size must be at most"),
    Mistake("tremble train pqr --set n_quantiles=0", r"n_quantiles=0: n_bins must be between 1 and 65536"),
    Mistake("tremble train pqr --set batch_size=2.5", r"batch_size must be a whole number"),
    Mistake("tremble train pqr --set widths=64,abc", r"widths must be whole numbers, got \['64,abc'\]"),
    Mistake("tremble train pqr --set double=maybe", r"double must be true or false"),
    Mistake("tremble train pqr --set criterion=cvarr", r"did you mean 'cvar'"),
    Mistake("tremble train pqr --set criterion=cvar --set eta=2", r"eta must be"),
    Mistake("tremble train pqr --set network=own:Missing", r"Missing"),
    Mistake("tremble train pqr --hyperparameters contrl", r"did you mean 'control'"),
    Mistake("tremble train pqr --env CartPole-v1 --protocol dopamine", r"--protocol is about Atari"),
    Mistake("tremble train pqr --env atari/Pong --protocol dopamin", r"dopamine"),
    Mistake("tremble train pqr --env CartPole-v1 --n-envs 0", r"n_envs must be between 1"),
    Mistake("tremble train pqr --n-envs 2", r"train_many"),
    Mistake("tremble train pqr --env-set right_hihg=3", r"did you mean 'right_high'"),
    Mistake(f"tremble train pqr --steps 60 --out done {SMALL} --seed 1", r"seed is 0 there and 1 here"),
    Mistake(f"tremble train pqr --steps 90 --out done {SMALL}", r"To lengthen it: tremble resume done --steps 90"),
    Mistake("tremble train pqr --out own.py", r"is a file; give a directory"),
    Mistake("tremble train pqr --out /proc/tremble", r"cannot write to /proc/tremble"),
    Mistake(f"tremble train pqr --env own:NanReward --steps 60 --out a {SMALL}", r"gave nan as reward at step 20"),
    Mistake(
        f"tremble train pqr --env own:Broken --steps 60 --evaluate-every 0 --out b {SMALL}",
        r"failed at step 20.*simulator crashed",
    ),
    Mistake(f"tremble train pqr --env own:NothingAllowed --steps 60 --out c {SMALL}", r"permits no action"),
    Mistake(f"tremble train pqr --env own:WrongMask --steps 60 --out d {SMALL}", r"for each of the 2 actions"),
    Mistake(f"tremble train pqr --env own:WrongShape --steps 60 --out e {SMALL}", r"shape"),
    Mistake("tremble resume nowhere", r"no run to resume in nowhere"),
    Mistake("tremble resume done --steps 30", r"can be lengthened, not cut"),
    Mistake("tremble evaluate nowhere", r"no weights at nowhere"),
    Mistake("tremble evaluate done --episodes 0", r"episodes of an evaluation must be at least 1"),
    Mistake("tremble evaluate done --weights best", r"train it with evaluate_every"),
    Mistake("tremble evaluate done --criterion cvarr", r"did you mean 'cvar'"),
    Mistake("tremble evaluate done --set eta=0.1", r"no setting 'eta'"),
    Mistake("tremble evaluate damaged", r"is damaged"),
    Mistake("tremble video done", r"render|pictures"),
    Mistake("tremble video cart --actions left", r"--actions has 1 names, and the agent has 2 actions"),
    Mistake("tremble curves", r"name at least one run"),
    Mistake("tremble curves nowhere", r"not the directory of a run"),
    Mistake("tremble list --settings pqrr", r"did you mean 'pqr'"),
    Mistake("tremble list --settings pqr --explain gama", r"did you mean 'gamma'"),
    Mistake("tremble study nchain-count", r"did you mean 'nchain-counts'"),
    Mistake("tremble study nchain-counts --seeds 0", r"at least one seed"),
    Mistake("tremble protocols dopamin", r"dopamine"),
    Mistake("tremble sweep missing.toml", r"no file missing\.toml"),
    Mistake("tremble sweep broken.toml", r"cannot be read as TOML"),
    Mistake("tremble sweep step.toml", r"no field 'step'; did you mean 'steps'"),
    Mistake("tremble sweep agent.toml", r"no agent 'pqrr'; did you mean 'pqr'"),
    Mistake("tremble sweep env.toml", r"Pendulum-v1.*continuous"),
    Mistake("tremble sweep grid.toml", r"no setting 'dleta_0'; did you mean 'delta_0'"),
    Mistake("tremble sweep search.toml", r"seed 1 is both a tuning seed and a test seed"),
    Mistake("tremble sweep space.toml", r"gamma needs low < high"),
    Mistake("tremble sweep callback.toml", r"own.*no attribute 'missing'"),
    Mistake("tremble sweep track.toml", r"did you mean 'tensorboard'"),
    Mistake("tremble sweep several.toml", r"2 things are wrong.*continuous.*missing"),
    Mistake("tremble sweep good.toml --shard 4/3", r"'4/3' is no shard"),
    Mistake("tremble sweep good.toml --jobs 0", r"--jobs must be at least 1"),
    Mistake("tremble sweep done", r"done holds no sweep"),
    Mistake("tremble sweep status nowhere", r"nowhere holds no sweep"),
    Mistake("tremble compare pqr qrdqn", r"--envs", 2),
    Mistake("tremble compare pqr dqnn --envs CartPole-v1", r"no agent 'dqnn'; did you mean 'dqn'"),
    Mistake("tremble compare pqr --envs CartPole-v1 --set delta=5", r"no setting 'delta'; did you mean"),
    Mistake("tremble report", r"name at least one sweep's directory"),
    Mistake("tremble report nowhere", r"nowhere holds no sweep"),
    Mistake("tremble results nowhere", r"nowhere holds no sweep"),
)
CALLS = (
    Mistake("tremble.make('pqr', deltaa=1)", r"no setting 'deltaa'"),
    Mistake("tremble.train('pqr', gymnasium.make('Pendulum-v1'), steps=60)", r"continuous"),
    Mistake("tremble.train('pqr', own.Base(), steps=60, evaluate_every=30, **SMALL)", r"evaluate_env"),
    Mistake("tremble.train(tremble.make('pqr'), 'nchain', steps=60, delta_0=3)", r"settings by name go with"),
    Mistake("tremble.train('pqr', 'nchain', steps=60, record_every=20, callback=lambda p: {'x': 'high'})", r"numbers"),
    Mistake("tremble.train_many('pqr', 'nchain', steps=60, seeds=[])", r"at least one seed"),
    Mistake("tremble.Sweep(agents=['pqr'])", r"with agents needs envs"),
    Mistake("tremble.Sweep(agents=['pqr'], envs=['nchain'], seeds=0)", r"seeds must be at least one"),
    Mistake("tremble.read_sweep('step.toml')", r"no field 'step'; did you mean 'steps'"),
    Mistake("tremble.load('own.py')", r"not a tremble file"),
    Mistake("tremble.load('nowhere')", r"no weights at nowhere"),
    Mistake("tremble.evaluate(tremble.load('cart'), 'Acrobot-v1', episodes=1)", r"observation|action"),
    Mistake("tremble.evaluate(tremble.load('cart'), 'CartPole-v1', episodes=0)", r"must be at least 1, got 0"),
    Mistake("tremble.load('cart').act([0.0, 0.0])", r"shape"),
    Mistake("tremble.load('cart').act([0.0] * 4, criterion='cvar', eat=0.1)", r"no setting 'eat'"),
)
MISTAKES = COMMANDS + CALLS


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """A directory with a module of one's own, two finished runs and a damaged one, as the current one."""
    import tremble

    before, columns = Path.cwd(), os.environ.get("COLUMNS")
    small: dict[str, Any] = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["COLUMNS"] = "1000"  # one line a message
        sys.path.append(folder)
        try:
            Path("own.py").write_text(OWN)
            for name, env in (("done", "nchain"), ("cart", "CartPole-v1"), ("damaged", "nchain")):
                tremble.train("pqr", env, steps=60, out=name, **small)
            for name, text in SWEEPS.items():
                Path(f"{name}.toml").write_text(text)
            Path("damaged/weights.safetensors").write_bytes(b"x" * 100)
            yield
        finally:
            os.chdir(before)
            sys.path.remove(folder)
            sys.modules.pop("own", None)
            os.environ.pop("COLUMNS") if columns is None else os.environ.__setitem__("COLUMNS", columns)


def commit(mistake: Mistake) -> tuple[int | str, str]:
    """Exit code (or the name of the exception) and message of a mistake."""
    return _call(mistake.what) if mistake.python else _run(mistake.what.split()[1:])


def _run(arguments: list[str]) -> tuple[int | str, str]:
    from tremble.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            main(arguments)
            code: int | str = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            code, _ = "traceback", err.write(traceback.format_exc())
    return code, _plain(err.getvalue() or out.getvalue())


def _call(line: str) -> tuple[int | str, str]:
    import gymnasium
    import own

    import tremble

    names = {"tremble": tremble, "gymnasium": gymnasium, "own": own}
    names["SMALL"] = {"n_quantiles": 4, "widths": [8], "batch_size": 4, "start_steps": 20}
    call: Callable[[], Any] = lambda: eval(line, names)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return type(error).__name__, _plain(str(error))
    return 0, "nothing was said"


def _plain(text: str) -> str:
    """One line without the frame that tyro draws around its messages."""
    words = re.sub(r"[╭╮╰╯│─]+|-{5,}", " ", text)
    return re.sub(r"\s+", " ", words).strip().removeprefix("error: ")


def comparable(message: str) -> str:
    """A message without what differs between machines: numbers, lists of choices."""
    return re.sub(r"choose from: .*", "choose from: ...", re.sub(r"\d[\d.,]*", "#", message))


def page() -> str:
    """The page in markdown."""
    lines = [
        "# Mistakes",
        "",
        "What the library says when something is wrong, one line each, written by `python -m tests.mistakes`. A",
        "command ends with the exit code in the second column (2: the command line cannot be read); in Python the",
        "exception of that name is raised. `own` is a module with environments that misbehave, `done` and `cart` are",
        "finished runs.",
        "",
        "| mistake | code | message |",
        "|---|---|---|",
    ]
    with workplace():
        for mistake in MISTAKES:
            code, message = commit(mistake)
            shown = message if len(message) <= 300 else message[:297] + "..."
            cells = (f"`{mistake.what}`", str(code), shown.replace("|", "\\|").replace("<", "&lt;"))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE.read_text())
