"""How long `import tremble`, `tremble --help` and `tremble list` take, each in a fresh process.

    python benchmarks/front_door.py                                # this source tree
    python benchmarks/front_door.py --source ../other/src -n 9     # another one, for comparison

The first process of each kind fills the caches (bytecode, disk) and is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[1] / "src"
HEAVY = ("jax", "pandas", "matplotlib")


def probes(source: Path) -> dict[str, str]:
    """Python programs by what they measure; the command moved between revisions."""
    main = "tremble.cli.main" if (source / "tremble/cli/main.py").exists() else "tremble.cli"
    command = f"from {main} import main\ntry: main({{}})\nexcept SystemExit: pass"
    return {
        "import tremble": "import tremble",
        "tremble --help": command.format(["--help"]),
        "tremble list": command.format(["list"]),
    }


def seconds(program: str, source: Path, repeats: int) -> list[float]:
    """Wall time of each of the processes."""
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
    taken = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - begin)
    return taken[1:]


def imported(program: str, source: Path) -> str:
    """Which of the large packages the program imports."""
    probe = f"{program}\nimport sys\nprint(*[m for m in {HEAVY} if m in sys.modules], file=sys.stderr)"
    environment = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
    result = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True)
    return result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "-"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=HERE, help="directory that holds the package")
    parser.add_argument("-n", "--repeats", type=int, default=5, help="processes per row (the median is shown)")
    options = parser.parse_args()
    source = options.source.resolve()
    print(f"{'':16} {'median':>8} {'min':>8} {'max':>8}  imports")
    for name, program in probes(source).items():
        taken = seconds(program, source, options.repeats)
        numbers = (statistics.median(taken), min(taken), max(taken))
        print(f"{name:16} " + " ".join(f"{x:7.2f}s" for x in numbers) + f"  {imported(program, source)}")


if __name__ == "__main__":
    main()
