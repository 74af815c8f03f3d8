"""Command line of the benchmarks: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from rich.console import Console

from benchmarks import atari, family, gym, jax_peers, loss, machine, nchain, overhead, report
from benchmarks.compare import Part

PARTS = {
    "loss": loss.measure,
    "nchain": nchain.measure,
    "overhead": overhead.measure,
    "gym": gym.measure,
    "family": family.measure,
    "atari": atari.measure,
    "jax_peers": jax_peers.measure,
}
HERE, SCRATCH = Path(__file__).parent, Path("runs/bench")
LOAD_WARNING = 0.5

EPILOG = """\
parts:
  loss      gradient of the quantile Huber loss: tremble, rlax and PyTorch (sb3-contrib), all cores and one thread
  nchain    N-Chain training steps per second: tremble and sb3-contrib, one seed and many
  overhead  PQR, DLTV and p-DLTV beside QR-DQN: what the criterion costs
  gym       LunarLander and CartPole training steps per second: tremble and sb3-contrib, one run and one per core
  family    every preset on CartPole and N-Chain, beside the peers that have the same agent
  atari     Pong training steps per second: tremble, sb3-contrib and Dopamine; MinAtar inside XLA and outside
  jax_peers CartPole and MinAtar training steps per second: tremble, rejax and sbx, all of them in JAX

examples:
  make bench                                  everything, some minutes; writes benchmarks/RESULTS.md and results.json
  make bench ARGS=--quick                     a minute or two, to see that everything works; the numbers mean little
  make bench ARGS="--only loss,overhead"      two parts; written to runs/bench, so the full results stay

Close other programs first. Turns alternate so that a disturbance hits everyone, but it hits threads that wait for one
another hardest; the results say how busy the rest of the machine was.
How to read the table: benchmarks/README.md.
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, show, write."""
    options = _parser().parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = 140
    missing = [name for name in ("torch", "sb3_contrib", "rlax", "tremble") if importlib.util.find_spec(name) is None]
    if missing:
        console.print(f"Not installed here: {', '.join(missing)}. Run `make bench`: it makes an environment with them.")
        return 2
    facts = machine.facts()
    console.print(f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_before']}", highlight=False)
    if facts["load_before"] > LOAD_WARNING:
        console.print("[yellow]The machine seems busy with something else: the numbers will suffer.[/]")
    others = machine.Others()
    partial = options.quick or set(options.only) != set(PARTS)
    directory = options.out or (SCRATCH if partial else HERE)
    command = "python -m benchmarks" + " --quick" * options.quick
    command += "" if set(options.only) == set(PARTS) else f" --only {','.join(options.only)}"
    kept = report.earlier(directory, options.only) if options.merge else []
    measured: list[Part] = []
    for name in options.only:
        console.print(f"[bold]{name}[/]")
        start = time.monotonic()
        try:
            measured.append(PARTS[name](console, options.quick))
        except RuntimeError as error:
            console.print(f"[red]{name} failed:[/]")
            console.print(str(error), markup=False, highlight=False)
            return 1
        except KeyboardInterrupt:
            console.print("stopped; the parts measured before are written")
            return 130
        console.print(f"  done in {time.monotonic() - start:.0f} s", highlight=False)
        busy = others.busy_cores()
        facts["others_busy_cores"] = None if busy is None else round(busy, 2)
        parts = sorted([*measured, *kept], key=lambda part: list(PARTS).index(part.name))
        paths = report.write(directory, facts, parts, command)  # after every part: the next one may be interrupted
    console.print()
    report.show(console, facts, parts)
    console.print(f"written: {', '.join(str(_short(path)) for path in paths)}", highlight=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Speed of tremble beside other libraries, as ratios taken in one run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: few rounds, written to runs/bench")
    parser.add_argument(
        "--only", type=_names, default=list(PARTS), metavar="PART[,PART]", help=f"some of: {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--merge", action="store_true", help="keep the parts of that directory that are not measured now; they say when"
    )
    parser.add_argument(
        "--out", type=Path, help="where to write RESULTS.md and results.json (default: benchmarks, for a full run)"
    )
    return parser


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PARTS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown) or text!r}; parts are {', '.join(PARTS)}")
    return [name for name in PARTS if name in names]


def _short(path: Path) -> Path:
    """Relative to where we are, if it is below."""
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main())
