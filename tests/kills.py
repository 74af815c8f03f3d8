"""Runs that are interrupted at chosen moments and continued must leave the files of an undisturbed run, byte for byte.

    python -m tests.kills                          every case; prints the table of docs/results/interruptions
    python -m tests.kills --only pqr --rounds 1    cases whose name contains "pqr", one round
    python -m tests.kills --out docs/results/interruptions

For each case one run goes undisturbed. Another one is interrupted once per moment, in random order, at a random
instance of that moment (which write, which step), and the same command is repeated after each. When a run has come to
its end, every file of the two directories is compared, and the moments that are left strike another one. Excepted are
files of wall-clock time and of the lock, and checkpoints but the newest.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SMALL = {"n_quantiles": 8, "widths": [16], "batch_size": 16, "start_steps": 60}


@dataclass(frozen=True)
class Case:
    """A run: small, with frequent rows, evaluations and checkpoints."""

    agent: str
    env: str
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = 600

    @property
    def name(self) -> str:
        """As the table shows it."""
        extra = [k if v is True else f"{k}={v}" for k, v in self.options.items() if k not in SMALL]
        return " ".join([self.agent, "on", self.env, *extra])


NO_QUANTILES = {name: value for name, value in SMALL.items() if name != "n_quantiles"}
CASES = (
    Case("pqr", "nchain", SMALL),
    Case("bootstrapped_dqn", "nchain", NO_QUANTILES),
    Case("qrdqn", "minatar/breakout", SMALL | {"widths": [8]}, steps=300),
    Case("pqr", "CartPole-v1", SMALL | {"n_step": 3, "prioritised": True, "n_envs": 2}),
    Case("qrdqn", "CartPole-v1", SMALL | {"update_interval": 8, "updates_per_round": 8}),
    Case("rainbow", "CartPole-v1", NO_QUANTILES),
    Case("iqn", "CartPole-v1", NO_QUANTILES),
    Case("fqf", "CartPole-v1", NO_QUANTILES),
    Case("quota", "CartPole-v1", SMALL | {"resample_noise_every": "episode"}),
    Case("c51", "CartPole-v1", NO_QUANTILES | {"async_learning": True, "prioritised": True}),
    Case("mmd", "Acrobot-v1", NO_QUANTILES),
    Case("p_dltv", "nchain", SMALL | {"n_step": 2}),
    Case("qrdqn", "tremble-tests/Pictures-v0", SMALL | {"memory_size": 200}, steps=400),
)
KILLED, TERMINATED, INTERRUPTED, FAULT = -signal.SIGKILL, 128 + signal.SIGTERM, 130, 1


@dataclass(frozen=True)
class Moment:
    """Where a run is interrupted: ``install`` puts a trap at the n-th time it passes there."""

    name: str
    install: Callable[[int], None]
    most: int
    """The trap is at a random one of so many passages."""
    codes: tuple[int, ...]
    """How the process may end; 0 where the run ended before its trap."""


def _trap(n: int, strike: Callable[[], None]) -> Callable[[], None]:
    passed = itertools.count(1)

    def pass_by() -> None:
        if next(passed) == n:
            strike()

    return pass_by


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _before(owner: Any, name: str, trap: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        trap()
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def kill_before_a_checkpoint(n: int) -> None:
    """SIGKILL while rows are logged, before there is any checkpoint (the first is at step 100)."""
    from tremble.training.run_directory import RunFiles

    _before(RunFiles, "append", _trap(n, _kill))


def kill_in_a_write(n: int) -> None:
    """SIGKILL with half of a file written under its temporary name."""
    from tremble.training import checkpoint

    original, count = checkpoint.save_file, itertools.count(1)

    def save_file(arrays: Any, path: Any, metadata: Any = None) -> None:
        original(arrays, path, metadata=metadata)
        if next(count) == n:
            os.truncate(path, os.path.getsize(path) // 2)
            _kill()

    checkpoint.save_file = save_file


def kill_between_writes(n: int) -> None:
    """SIGKILL after a file got its name, before the next one is written."""
    from tremble.training import checkpoint

    original = os.replace
    trap = _trap(n, _kill)

    def replace(*args: Any) -> None:
        original(*args)
        trap()

    checkpoint.os.replace = replace  # type: ignore[assignment]


def kill_in_a_row(n: int) -> None:
    """SIGKILL with half of a row of a log written."""
    from tremble.training.run_directory import RunFiles

    original = RunFiles.append

    def strike_at(files: Any, log: str, row: Any) -> None:
        with open(files.directory / f"{log}.jsonl", "a") as file:
            file.write(json.dumps(row)[: 1 + len(json.dumps(row)) // 2])
        _kill()

    count = itertools.count(1)

    def append(files: Any, log: str, row: Any) -> None:
        (strike_at if next(count) == n else original)(files, log, row)

    RunFiles.append = append  # type: ignore[method-assign]


def in_an_evaluation(number: signal.Signals) -> Callable[[int], None]:
    """A signal to itself between two episodes of an evaluation."""

    def install(n: int) -> None:
        from tremble.training import run_in_progress as run

        original, trap = run.evaluate, _trap(n, lambda: os.kill(os.getpid(), number))
        run.evaluate = lambda *args, **kwargs: original(*args, **kwargs, on_episode=lambda done: trap())  # type: ignore

    return install


def at_a_step(number: signal.Signals, times: int = 1) -> Callable[[int], None]:
    """A signal to itself while a step or chunk is under way, possibly twice."""

    def install(n: int) -> None:
        from tremble.training.gym_loop import GymLoop
        from tremble.training.xla_loop import CompiledRun

        def strike() -> None:
            for _ in range(times):
                os.kill(os.getpid(), number)

        _before(GymLoop, "_store", _trap(20 * n, strike))
        _before(CompiledRun, "advance", _trap(n, strike))

    return install


def at_an_update(n: int) -> None:
    """SIGKILL between two updates, or while a burst of them is computed; inside XLA, between two chunks."""
    from tremble.training import compiled_calls
    from tremble.training.xla_loop import CompiledRun

    _before(compiled_calls, "update", _trap(13 * n, _kill))
    dispatch, trap = compiled_calls.update_in_turn, _trap(3 * n, _kill)

    def update_in_turn(*args: Any) -> Any:
        learner = dispatch(*args)  # returns before it is done
        trap()
        return learner

    compiled_calls.update_in_turn = update_in_turn
    _before(CompiledRun, "advance", _trap(n + 1, _kill))


def fault_of_the_environment(n: int) -> None:
    """The environment raises once; inside XLA there is none, and evaluation's raises instead."""
    import gymnasium

    original, count = gymnasium.Wrapper.step, itertools.count(1)

    def step(self: Any, action: Any) -> Any:
        if next(count) == 60 * n:
            raise OSError("the simulator lost its connection")
        return original(self, action)

    gymnasium.Wrapper.step = step  # type: ignore[method-assign]


def full_disk(n: int) -> None:
    """Writing a checkpoint fails once, as on a full disk."""
    from tremble.training import checkpoint

    def strike() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _before(checkpoint, "save_file", _trap(n, strike))


MOMENTS = (
    Moment("SIGKILL before the first checkpoint", kill_before_a_checkpoint, 6, (KILLED, 0)),
    Moment("SIGKILL during a write", kill_in_a_write, 6, (KILLED, 0)),
    Moment("SIGKILL between two writes", kill_between_writes, 9, (KILLED, 0)),
    Moment("SIGKILL in the middle of a log row", kill_in_a_row, 12, (KILLED, 0)),
    Moment("SIGKILL during an evaluation", in_an_evaluation(signal.SIGKILL), 4, (KILLED, 0)),
    Moment("SIGTERM during an evaluation", in_an_evaluation(signal.SIGTERM), 4, (TERMINATED, 0)),
    Moment("SIGINT during an evaluation", in_an_evaluation(signal.SIGINT), 4, (INTERRUPTED, 0)),
    Moment("SIGKILL between updates, in a burst", at_an_update, 9, (KILLED, 0)),
    Moment("SIGTERM at a step", at_a_step(signal.SIGTERM), 9, (TERMINATED, 0)),
    Moment("SIGINT at a step", at_a_step(signal.SIGINT), 9, (INTERRUPTED, 0)),
    Moment("SIGINT twice at a step", at_a_step(signal.SIGINT, 2), 9, (INTERRUPTED, 0)),
    Moment("exception of the environment", fault_of_the_environment, 6, (FAULT, 0)),
    Moment("full disk during a checkpoint", full_disk, 4, (FAULT, 0)),
)


def train(case: Case, directory: Path) -> None:
    """The command that is interrupted and repeated."""
    import tremble
    from tests import fuzz  # noqa: F401 (registers the environment with pictures)

    tremble.train(
        case.agent,
        case.env,
        steps=case.steps,
        hyperparameters="control",
        out=directory,
        chunk=25,
        record_every=40,
        checkpoint_every=100,
        evaluate_every=150,
        evaluate_episodes=2,
        final_episodes=0 if case.env == "nchain" else 2,  # its episodes may not end before they are cut
        **case.options,
    )


def child(case: Case, directory: Path, moment: Moment | None, n: int) -> int:
    """Train in a process of its own with a trap; returns how it ended."""
    process = os.fork()  # JAX is imported, but has started no thread yet: a fork spares every child the import
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        if moment is not None:
            moment.install(n)
        train(case, directory)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        code = FAULT
    finally:
        os._exit(code)


def files_of(directory: Path) -> dict[str, bytes]:
    """What equal runs have in common."""
    newest = max((path.name for path in (directory / "checkpoints").glob("step-*")), default="")
    found = {}
    for path in sorted(directory.rglob("*")):
        apart = path.name.startswith(("lock-", "timing.")) or path.parent.name == "blocks"
        older = path.name.startswith("step-") and path.name != newest
        if path.is_file() and not apart and not older:
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found


@dataclass
class Result:
    """What happened to one case."""

    case: Case
    struck: Counter[str]
    """Interruptions that took place, by moment."""
    different: list[str]
    """Files that differ from those of the undisturbed run."""


def interrupt(case: Case, root: Path, rng: random.Random, rounds: int, undisturbed: dict[str, bytes]) -> Result:
    """Interrupt a run at every moment, ``rounds`` times over."""
    struck: Counter[str] = Counter()
    different: list[str] = []
    directories = (root / f"{number}" for number in itertools.count())
    for _ in range(rounds):
        directory = next(directories)
        first, *rest = MOMENTS
        for moment in [first, *rng.sample(rest, len(rest))]:
            for n in (rng.randint(1, moment.most), 1):
                ended = child(case, directory, moment, n)
                if ended not in moment.codes:
                    different.append(f"{moment.name} ended with {ended}")
                struck[moment.name] += ended != 0
                if ended:
                    break
                # The run went to its end before it came there so often: another one, interrupted the first time.
                different += differences(undisturbed, directory)
                directory = next(directories)
        if child(case, directory, None, 0):
            different.append("the last repetition failed")
        different += differences(undisturbed, directory)
    return Result(case, struck, different)


def differences(undisturbed: dict[str, bytes], directory: Path) -> list[str]:
    """The files of a finished run that differ from those of the undisturbed one."""
    there = files_of(directory)
    names = sorted(undisturbed.keys() | there.keys())
    return [f"{directory.name}/{name}" for name in names if undisturbed.get(name) != there.get(name)]


def run_case(case: Case, rounds: int, seed: str) -> Result:
    """One case from its undisturbed run to the comparison; says on standard error what came of it."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if child(case, root / "whole", None, 0):
            raise RuntimeError(f"{case.name} does not train")
        result = interrupt(case, root, random.Random(seed), rounds, files_of(root / "whole"))
    verdict = "equal" if not result.different else f"DIFFERENT: {'; '.join(result.different)}"
    seconds = time.monotonic() - begin
    line = f"{case.name}: {sum(result.struck.values())} interruptions, {seconds:.0f} s: {verdict}"
    print(line, file=sys.stderr, flush=True)
    return result


def run_cases(cases: tuple[Case, ...], rounds: int, seed: int, jobs: int) -> Iterator[Result]:
    """All cases, ``jobs`` at a time, each in a process of its own; yields what came of each, in their order."""
    import tremble.training.run  # noqa: F401 (before the forks)

    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        waiting = [pool.submit(run_case, case, rounds, f"{seed}-{k}") for k, case in enumerate(cases)]
        for future in waiting:
            yield future.result()


def table(results: list[Result]) -> str:
    """Markdown: a row per case, a column per moment with how often it struck, and the files that differ."""
    names = [moment.name for moment in MOMENTS]
    lines = [f"| run | {' | '.join(names)} | files that differ |", f"|---|{'---:|' * (len(names) + 1)}"]
    for result in results:
        counts = " | ".join(str(result.struck[name]) for name in names)
        lines.append(f"| `{result.case.name}` | {counts} | {len(result.different)} |")
    total = sum(sum(result.struck.values()) for result in results)
    return "\n".join(lines) + f"\n\n{total} interruptions in all.\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=1, help="times that every moment is tried in every case (1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time (one per core)")
    parser.add_argument("--out", type=Path, help="write README.md there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
        chosen = tuple(case for case in CASES if options.only in case.name)
        results: list[Result] = []
        for result in run_cases(chosen, options.rounds, options.seed, options.jobs):
            results.append(result)
            if options.out:
                write(results, options.out, options.rounds, options.seed)
    print(table(results))
    sys.exit(any(result.different for result in results))


def write(results: list[Result], out: Path, rounds: int, seed: int) -> None:
    """The page of the cases so far."""
    out.mkdir(parents=True, exist_ok=True)
    head = "# Interrupted runs\n\nWritten by `python -m tests.kills --out docs/results/interruptions`"
    about = f" (rounds {rounds}, seed {seed}). Numbers count interruptions that took place.\n\n"
    (out / "README.md").write_text(head + about + table(results))


if __name__ == "__main__":
    main()
