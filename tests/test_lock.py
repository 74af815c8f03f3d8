"""One writer per run directory: races, dead owners, suspended owners."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tremble.records import CheckpointError
from tremble.training.lock import Lock, LockedError

OWNER = """
import sys, time
from pathlib import Path
from tremble.training.lock import Lock, LockedError
lock = Lock.acquire(Path(sys.argv[1]), lease=float(sys.argv[2]))
print("owner", flush=True)
for line in sys.stdin:
    try:
        lock.check()
        print("mine", flush=True)
    except LockedError as error:
        print(error, flush=True)
"""


def start_owner(directory: Path, lease: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory), str(lease)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "owner\n"
    return process


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("?\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_second_owner_is_refused_and_told_who_holds_it(tmp_path):
    lock = Lock.acquire(tmp_path, lease=3)
    lock.show("training", 1234)
    with pytest.raises(LockedError, match=f"process {os.getpid()} on .* trains in it"):
        Lock.acquire(tmp_path, lease=3)
    lock.check()
    lock.release()
    Lock.acquire(tmp_path, lease=3).release()


def test_numbers_only_grow_and_old_files_go(tmp_path):
    for _ in range(12):
        Lock.acquire(tmp_path, lease=3).release()
    assert [path.name for path in tmp_path.iterdir()] == ["lock-12.json"]
    assert json.loads((tmp_path / "lock-12.json").read_text())["released"] is True


def test_a_dead_owner_of_this_machine_is_recognised_at_once(tmp_path):
    owner = start_owner(tmp_path, 60)
    owner.kill()
    owner.wait()
    begin = time.monotonic()
    Lock.acquire(tmp_path, lease=60).release()
    assert time.monotonic() - begin < 20  # far less than the lease


def test_a_dead_owner_of_another_machine_is_recognised_after_its_lease(tmp_path):
    owner = start_owner(tmp_path, 60)
    owner.kill()
    owner.wait()
    path = tmp_path / "lock-1.json"
    fields = json.loads(path.read_text()) | {"machine": "elsewhere/1/2"}
    path.write_text(json.dumps(fields))
    begin = time.monotonic()
    Lock.acquire(tmp_path, lease=0.5).release()
    assert time.monotonic() - begin > 0.5


def test_a_suspended_owner_notices_that_it_lost_the_directory(tmp_path):
    owner = start_owner(tmp_path, 1.0)
    try:
        assert ask(owner) == "mine"
        owner.send_signal(signal.SIGSTOP)
        lock = Lock.acquire(tmp_path, lease=1.0)
        owner.send_signal(signal.SIGCONT)
        assert "no longer owns" in ask(owner)
        lock.check()
        lock.release()
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"null", b'{"pid": "a", "machine": 3}', b"\xff" * 600])
def test_a_lock_file_of_nonsense_is_taken_over_after_the_lease(tmp_path, content):
    (tmp_path / "lock-7.json").write_bytes(content)
    Lock.acquire(tmp_path, lease=0.3).release()
    assert (tmp_path / "lock-8.json").exists()


def test_links_pipes_and_impossible_numbers(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("stays")
    inside = tmp_path / "run"
    inside.mkdir()
    (inside / "lock-1.json").symlink_to(outside)
    os.mkfifo(inside / "lock-2.json")
    Lock.acquire(inside, lease=0.3).release()
    assert outside.read_text() == "stays"
    (inside / f"lock-{10**15 - 1}.json").write_text("{}")
    with pytest.raises(CheckpointError, match="impossible number"):
        Lock.acquire(inside, lease=0.3)


def test_a_directory_that_cannot_be_written_to_is_one_message(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        Lock.acquire(tmp_path / "file" / "run")


def _contend(connection: Any) -> None:
    """A contender: for every directory it is sent, try to own it and report; the winner waits to be told to let go."""
    while (directory := connection.recv()) is not None:
        try:
            lock = Lock.acquire(directory, lease=3)
        except LockedError as error:
            connection.send(str(error))
            continue
        connection.send("won")
        connection.recv()
        lock.check()
        lock.release()


def race(root: Path, contenders: int, rounds: int) -> None:
    """Every round: all try to own one directory at the same time; exactly one does, and the others name it."""
    context = multiprocessing.get_context("forkserver")
    pipes, processes = [], []
    for _ in range(contenders):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=_contend, args=(theirs,), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    try:
        for number in range(rounds):
            directory = root / str(number % 50)  # some of them new, others with the files of released locks
            for pipe in pipes:
                pipe.send(directory)
            answers = [pipe.recv() for pipe in pipes]
            winners = [i for i, answer in enumerate(answers) if answer == "won"]
            assert len(winners) == 1, answers
            owner = f"process {processes[winners[0]].pid} on"
            assert all(owner in answer for i, answer in enumerate(answers) if i not in winners), answers
            pipes[winners[0]].send("let go")
    finally:
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join(10)


@pytest.mark.slow
@pytest.mark.parametrize("contenders", [2, 8])
def test_races(tmp_path, contenders):
    race(tmp_path, contenders, 15)


@pytest.mark.long
@pytest.mark.parametrize("contenders", [2, 4, 8])
def test_a_thousand_races(tmp_path, contenders):
    race(tmp_path, contenders, 1000)


# --- whole runs -------------------------------------------------------------------------------------------------------

TRAIN = """
import sys
import tremble
tremble.train(
    "qrdqn", "CartPole-v1", steps=int(sys.argv[2]), out=sys.argv[1], chunk=10, record_every=50, checkpoint_every=100,
    n_quantiles=8, widths=[16], batch_size=16, start_steps=60,
)
"""


def start_run(directory: Path, steps: int, lease: float) -> subprocess.Popen[str]:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "1", "TREMBLE_LEASE_SECONDS": str(lease)}
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(directory), str(steps)], stderr=subprocess.PIPE, text=True, env=env
    )


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith(("timing", "lock"))
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("undisturbed")
    assert start_run(directory, 2000, 30).wait(timeout=300) == 0
    return files_of(directory)


@pytest.mark.long
@pytest.mark.parametrize("contenders", [2, 4, 8])
def test_one_of_several_runs_trains_and_the_others_name_it(tmp_path, contenders, undisturbed):
    for number in range(7):
        directory = tmp_path / str(number)
        runs = [start_run(directory, 2000, 30) for _ in range(contenders)]
        said = [run.communicate(timeout=600)[1] for run in runs]
        losers = [(run, text) for run, text in zip(runs, said, strict=True) if run.returncode]
        assert all("is in use: process" in text for _, text in losers), said
        assert len(losers) < contenders and files_of(directory) == undisturbed


@pytest.mark.long
def test_a_suspended_run_that_was_taken_over_writes_nothing_more(tmp_path, undisturbed):
    directory = tmp_path / "run"
    first = start_run(directory, 2000, 2)
    while not list(directory.glob("checkpoints/step-*")):
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGSTOP)
    assert first.poll() is None, "it must not be done yet"
    second = start_run(directory, 2000, 2)
    assert second.wait(timeout=300) == 0
    first.send_signal(signal.SIGCONT)
    _, said = first.communicate(timeout=300)
    assert first.returncode == 1 and "no longer owns" in said
    assert files_of(directory) == undisturbed
