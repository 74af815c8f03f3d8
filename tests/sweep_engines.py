"""One sweep worked off by every engine must leave the same files, byte for byte; what the engines take is measured.

    python -m tests.sweep_engines --out docs/results/sweep-engines            64 runs, three times
    python -m tests.sweep_engines --out docs/results/sweep-engines --overhead local against Ray; on a quiet machine

Engines: two local processes; four shards, each a command of its own, that share one directory; a Ray cluster of three
nodes on this machine. Excepted from the comparison are wall-clock times, locks, records of tries, and what outcomes say
besides state and step. Results are kept as JSON beside the page, which is written from both parts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.sweep_kit import (
    ROOT,
    LocalCluster,
    compare,
    files_of_sweep,
    machine_busy_seconds,
    measured,
    outcomes_of,
    ray_cluster,
    say,
    start,
)

SMALL = {"widths": [32], "batch_size": 32, "start_steps": 200}
STEPS = {"nchain": 20_000, "CartPole-v1": 6_000, "LunarLander-v3": 4_000, "minatar/breakout": 2_000}
"""Each some seconds on one core."""
AGENTS = ("pqr", "qrdqn", "iqn", "c51")


def sweep_file(path: Path, seeds: int, share: float) -> Path:
    """Write the sweep: every agent on every environment, each environment with a length of its own."""
    cells = "".join(
        f"[[cells]]\nlabel = {json.dumps(f'{agent} | {env}')}\nagent = {json.dumps(agent)}\nenv = {json.dumps(env)}\n"
        f"steps = {max(300, int(steps * share))}\n[cells.agent_options]\n"
        + "".join(f"{name} = {value}\n" for name, value in SMALL.items())
        + "\n"
        for env, steps in STEPS.items()
        for agent in AGENTS
    )
    every = max(100, int(1000 * share))
    top = f"seeds = {seeds}\nrecord_every = {every}\nevaluate_every = {2 * every}\nevaluate_episodes = 2\n"
    path.write_text(f"{top}final_episodes = 5\ncheckpoint_every = {2 * every}\n\n{cells}")
    return path


@dataclass(frozen=True)
class Worked:
    """One engine and the sweep."""

    engine: str
    seconds: float
    processor_seconds: float
    """Of the runs, as outcomes say."""
    busy_share: float | None
    """Processor time of command and workers / (wall-clock time x cores); None where workers are not its children."""
    others_share: float
    """The same of everything else on the machine."""
    runs: int
    finished: int
    files: int
    different: list[str]


def local(file: Path, directory: Path, **more: str) -> tuple[int, float | None]:
    """Two processes."""
    found = measured("sweep", file, "--out", directory, "--jobs", 2, "--no-measure", **more)
    _require(found.code, found.said)
    return found.code, found.processor_seconds


def shards(file: Path, directory: Path, **more: str) -> tuple[int, float | None]:
    """Four commands at a time."""
    words = ("--out", directory, "--jobs", 1, "--no-measure")
    commands = [start("sweep", file, *words, "--shard", f"{k}/4", **more) for k in (1, 2, 3, 4)]
    for command in commands:
        said = command.wait(7200)
        _require(command.process.returncode, said)
    return 0, None


def on(cluster: LocalCluster) -> Callable[..., tuple[int, float | None]]:
    """On a cluster."""

    def ray(file: Path, directory: Path, **more: str) -> tuple[int, float | None]:
        words = ("--engine", "ray", "--address", cluster.address, "--no-measure")
        found = measured("sweep", file, "--out", directory, *words, **more)
        _require(found.code, found.said)
        return found.code, None

    return ray


def _require(code: int, said: str) -> None:
    if code:
        raise SystemExit(f"a sweep ended with {code}:\n{said}")


def work(name: str, engine: Callable[..., Any], file: Path, directory: Path, reference: dict[str, bytes]) -> Worked:
    """Let an engine work off the sweep, and compare with the first one's files."""
    shutil.rmtree(directory, ignore_errors=True)
    say(f"{name} ...")
    with tempfile.TemporaryDirectory() as cache:  # each compiles everything itself
        begin, busy = time.monotonic(), machine_busy_seconds()
        _, spent = engine(file, directory, TREMBLE_COMPILATION_CACHE=cache)
        seconds, busy = time.monotonic() - begin, machine_busy_seconds() - busy
    files, outcomes = files_of_sweep(directory), outcomes_of(directory)
    same = compare(reference or files, files)
    cores = os.cpu_count() or 1
    own = sum(outcome["processor_seconds"] for outcome in outcomes.values())
    worked = Worked(
        name,
        seconds,
        own,
        None if spent is None else spent / (seconds * cores),
        max(0.0, busy - (own if spent is None else spent)) / (seconds * cores),
        len(outcomes),
        sum(outcome["state"] == "finished" for outcome in outcomes.values()),
        same.files,
        same.different,
    )
    say(f"{name}: {worked.runs} runs, {worked.files} files, {len(worked.different)} different, {seconds:.0f} s")
    return worked


def compare_engines(folder: Path, seeds: int, share: float) -> list[Worked]:
    """The sweep with every engine."""
    file = sweep_file(folder / "sweep.toml", seeds, share)
    first = work("local, 2 processes", local, file, folder / "local", {})
    reference = files_of_sweep(folder / "local")
    found = [first, work("4 shards, 1 process each", shards, file, folder / "shards", reference)]
    with ray_cluster(nodes=3) as cluster:
        found.append(work("Ray, 3 nodes of 1 core", on(cluster), file, folder / "ray", reference))
    return found


def overhead(folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Wall-clock times of four runs on two local processes and on a cluster of two cores, in turns."""
    from tremble.sweeps.measure import measure
    from tremble.training.spec import RunSpec

    say("measuring the speed ...")
    options = {"widths": [64], "batch_size": 32, "start_steps": 500}
    speed = measure(RunSpec("qrdqn", "CartPole-v1", 10_000, agent_options=options), min(10.0, seconds))
    steps = max(1000, round(speed.steps_per_second * seconds, -3))
    file = folder / "overhead.toml"
    settings = "".join(f"{name} = {value}\n" for name, value in options.items())
    head = f'agents = ["qrdqn"]\nenvs = ["CartPole-v1"]\nsteps = {int(steps)}\nseeds = 4\nfinal_episodes = 5\n'
    file.write_text(f"{head}evaluate_every = {int(steps)}\nevaluate_episodes = 2\n[settings]\n{settings}")
    found: dict[str, Any] = {"steps": int(steps), "local": [], "ray": [], "others": []}
    with ray_cluster(nodes=2) as cluster:
        for number in range(rounds):
            for name, engine in (("local", local), ("ray", on(cluster))):
                worked = work(f"{name}, round {number + 1}", engine, file, folder / f"{name}-{number}", {})
                found[name].append(round(worked.seconds, 1))
                found["others"].append(round(worked.others_share, 3))
    return found


def page(out: Path) -> str:
    """The page of what was measured so far."""
    lines = ["# Engines of sweeps", ""]
    lines += ["Written by `python -m tests.sweep_engines --out docs/results/sweep-engines`, and with `--overhead`.", ""]
    if (out / "engines.json").exists():
        found = json.loads((out / "engines.json").read_text())
        lines += ["## The same files", ""]
        lines += [f"{found['sweep']}", ""]
        lines += [f"{found['about']} Compared file by file and byte for byte with those of the first engine.", ""]
        lines += ["| engine | runs | finished | files | files that differ | wall clock | cores busy | other work |"]
        lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
        for row in found["engines"]:
            busy = "" if row["busy_share"] is None else f"{row['busy_share']:.0%}"
            counts = f"{row['runs']} | {row['finished']} | {row['files']} | {len(row['different'])}"
            times = f"{row['seconds']:,.0f} s | {busy} | {row['others_share']:.0%}"
            lines.append(f"| {row['engine']} | {counts} | {times} |")
        lines += ["", "*Cores busy*: processor time of the command and its workers, of all cores over the whole time, "]
        lines[-1] += "start-up and the end included, where some workers have nothing left. *Other work*: the share "
        lines[-1] += "that everything else on the machine took meanwhile, for Ray its own processes included; wall "
        lines[-1] += "clocks compare only where it is small."
        lines += ["", *(f"- differs: `{name}`" for row in found["engines"] for name in row["different"][:10])]
    if (out / "overhead.json").exists():
        found = json.loads((out / "overhead.json").read_text())
        ratios = [ray / local for ray, local in zip(found["ray"], found["local"], strict=True)]
        lines += ["## Overhead of Ray", ""]
        lines += [
            f"{found['about']} Four runs of {found['steps']:,} steps, on two local processes and on a cluster of "
        ]
        lines[-1] += "two nodes of one core, in turns; wall clock of the whole command."
        lines += ["", "| round | local | Ray | ratio |", "|---:|---:|---:|---:|"]
        for number, (one, other, ratio) in enumerate(zip(found["local"], found["ray"], ratios, strict=True), start=1):
            lines.append(f"| {number} | {one:,.1f} s | {other:,.1f} s | {ratio:.2f} |")
        lines += ["", f"Other work took at most {max(found['others']):.0%} of the machine (Ray's own included)."]
    return "\n".join(lines).rstrip() + "\n"


def about_sweep(file: Path) -> str:
    """Its runs in words."""
    fields = tomllib.loads(file.read_text())
    steps = {cell["env"]: cell["steps"] for cell in fields["cells"]}
    lengths = ", ".join(f"{env} ({n:,} steps)" for env, n in steps.items())
    agents = ", ".join(dict.fromkeys(cell["agent"] for cell in fields["cells"]))
    return f"Agents {agents}, each on {lengths}, with {fields['seeds']} seeds."


def about_machine() -> str:
    """Which machine."""
    import jax

    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, JAX {jax.__version__}."


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write README.md and JSON there")
    parser.add_argument("--work", type=Path, help="where the sweeps go (a temporary directory)")
    parser.add_argument("--seeds", type=int, default=4, help="of each of the 16 cells (4)")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual length of runs (1)")
    parser.add_argument("--overhead", action="store_true", help="measure Ray against local instead")
    parser.add_argument("--seconds", type=float, default=60.0, help="that a run takes with --overhead (60)")
    parser.add_argument("--rounds", type=int, default=2, help="of --overhead (2)")
    options = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        place = options.work or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        if options.overhead:
            name, record = "overhead", {"about": about_machine()} | overhead(place, options.seconds, options.rounds)
            failed = False
        else:
            engines = compare_engines(place, options.seeds, options.share)
            about = {"about": about_machine(), "sweep": about_sweep(place / "sweep.toml")}
            name, record = "engines", about | {"engines": [asdict(each) for each in engines]}
            failed = any(each.different or each.finished < each.runs for each in engines)
    print(json.dumps(record, indent=2))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        (options.out / "README.md").write_text(page(options.out))
    sys.exit(failed)


if __name__ == "__main__":
    main()
