"""How long the first things take that people do with tremble, each in a fresh process.

    python benchmarks/front_door.py                                # this source tree
    python benchmarks/front_door.py --source ../other/src -n 9     # another one, for comparison

`import tremble`, `tremble --help`, `tremble list`; and `tremble train` of one update after a few steps, to the end of
the process: once with nothing compiled before, and once with what the same command left on disk.
The first process of each kind fills the caches (bytecode, disk) and is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[1] / "src"
HEAVY = ("jax", "pandas", "matplotlib")
FIRST_STEP = "train pqr --env {env} --steps 51 --set start_steps=50 --out {out}"
"""One update, with the sizes that a run of the environment has by default."""


def command(source: Path, words: list[str]) -> str:
    """A Python program that runs a command of tremble; the command moved between revisions."""
    main = "tremble.cli.main" if (source / "tremble/cli/main.py").exists() else "tremble.cli"
    return f"from {main} import main\ntry: main({words})\nexcept SystemExit: pass"


def seconds(program: str, source: Path, cache: Path) -> float:
    """Wall time of a process."""
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(cache)}
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def imported(program: str, source: Path) -> str:
    """Which of the large packages the program imports."""
    probe = f"{program}\nimport sys\nprint(*[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
    result = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    return result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "-"


def measure(source: Path, repeats: int, scratch: Path) -> None:
    """Print a line for each kind of process."""
    programs = {
        "import tremble": "import tremble",
        "tremble --help": command(source, ["--help"]),
        "tremble list": command(source, ["list"]),
    }
    for name, program in programs.items():
        taken = [seconds(program, source, scratch / "cache") for _ in range(repeats + 1)][1:]
        show(name, taken, f"  {imported(program, source)}")
    for env in ("CartPole-v1", "nchain"):
        first, second = [], []
        for k in range(repeats):
            for taken in (first, second):
                out = scratch / f"{env}-{k}-{len(taken)}-{taken is first}"
                words = FIRST_STEP.format(env=env, out=out).split()
                taken.append(seconds(command(source, words), source, scratch / f"cache-{env}-{k}"))
        show(f"{env}, first call", first)
        show(f"{env}, second call", second)


def show(name: str, taken: list[float], rest: str = "") -> None:
    """A line of the table."""
    numbers = (statistics.median(taken), min(taken), max(taken))
    print(f"{name:24} " + " ".join(f"{x:7.2f}s" for x in numbers) + rest, flush=True)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=HERE, help="directory that holds the package")
    parser.add_argument("-n", "--repeats", type=int, default=5, help="processes per row (the median is shown)")
    options = parser.parse_args()
    print(f"{'':24} {'median':>8} {'min':>8} {'max':>8}  imports")
    with tempfile.TemporaryDirectory() as scratch:
        measure(options.source.resolve(), options.repeats, Path(scratch))


if __name__ == "__main__":
    main()
