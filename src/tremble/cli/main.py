"""The command `tremble`. Modules of commands import the library when a command is executed, so --help is quick."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, get_args

import tyro
from rich.console import Console
from rich.text import Text

from tremble import escape
from tremble.cli.console import console, types
from tremble.cli.curves import Curves
from tremble.cli.doctor import Doctor
from tremble.cli.evaluate import Evaluate
from tremble.cli.interrupt import interruptible
from tremble.cli.list import List, Protocols
from tremble.cli.results import Compare, Report, Results
from tremble.cli.study import Demo, Illustrate, Study
from tremble.cli.sweep import Sweep, SweepExample, SweepGc, SweepRetry, SweepStatus, SweepStop
from tremble.cli.train import Resume, Train
from tremble.cli.video import Video
from tremble.settings import nearest

USAGE = 2
"""Exit code of a command line that is none."""
Command = (
    Train
    | Resume
    | Evaluate
    | Video
    | Curves
    | Sweep
    | SweepStatus
    | SweepStop
    | SweepRetry
    | SweepGc
    | SweepExample
    | Compare
    | Report
    | Results
    | Study
    | Demo
    | Protocols
    | Doctor
    | Illustrate
    | List
)
"""Each class is the subcommand of its name: `SweepStatus` is ``tremble sweep-status`` or ``tremble sweep status``."""
RESUMABLE = (Train, Resume, Sweep, Compare, Study, Demo)
"""Commands that go on where they were interrupted."""
COMPUTING = (Train, Resume, Evaluate, Video, Study, Demo)
"""Commands that compile programs."""
UNCACHED = "--no-compilation-cache"
DESCRIPTION = f"""\
Distributional reinforcement learning with randomised risk criteria.

Compiled programs are kept in ~/.cache/tremble, so that later commands start sooner.
{UNCACHED} anywhere in a command, or TREMBLE_COMPILATION_CACHE=off, turns that off;
TREMBLE_COMPILATION_CACHE=FOLDER chooses another folder."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point; expected failures are one message and a non-zero exit. ``arguments`` default to the process's."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if UNCACHED in arguments:
        arguments = [argument for argument in arguments if argument != UNCACHED]
        os.environ["TREMBLE_COMPILATION_CACHE"] = "off"  # processes that the command starts inherit it
    arguments = _joined(arguments)
    _check_command(arguments)
    sys.path.append(str(Path.cwd()))  # so that module:name may be a file in the current directory
    command = _parse(arguments)
    try:
        with interruptible():
            if isinstance(command, COMPUTING):
                from tremble.training.compilation_cache import enable_compilation_cache

                enable_compilation_cache()
            command.run()
    except KeyboardInterrupt:
        kept = " What was finished is kept: repeat the command to continue." if isinstance(command, RESUMABLE) else ""
        console.print(f"\n[yellow]interrupted.[/]{kept}")
        sys.exit(130)
    except SystemExit as stop:
        if stop.code == 143:
            console.print("\n[yellow]terminated.[/] What was finished is kept: repeat the command to continue.")
        raise
    except Exception as error:
        if not isinstance(error, _expected_errors()):
            raise
        _fail(str(error), 1)
    finally:
        sys.stdout.flush()


def _parse(arguments: Sequence[str]) -> Command:
    """The record of the command; ends with the help, or with what is wrong."""
    return tyro.cli(
        Command,
        prog="tremble",
        args=arguments,
        description=DESCRIPTION,
        registry=types,
    )


def _check_command(arguments: Sequence[str]) -> None:
    """End with a hint where the first argument is no command; without arguments, with the help."""
    names = _names()
    if not arguments:
        with suppress(SystemExit):
            _parse(["--help"])
        sys.exit(USAGE)
    if not arguments[0].startswith("-") and arguments[0] not in names:
        offered = [name for name in names if not name.startswith("sweep-")]  # those are written `sweep status`
        _fail(f"there is no command {arguments[0]!r}; {nearest(arguments[0], offered)}", USAGE)


def _names() -> list[str]:
    return [re.sub(r"(?<!^)(?=[A-Z])", "-", command.__name__).lower() for command in get_args(Command)]


def _joined(arguments: list[str]) -> list[str]:
    """``sweep status DIR`` as ``sweep-status DIR``."""
    pair = "-".join(arguments[:2])
    return [pair, *arguments[2:]] if arguments[:1] == ["sweep"] and pair in _names() else arguments


def _fail(message: str, code: int) -> NoReturn:
    """Print one message to standard error and end."""
    text = Text("\n".join(escape.plain(line) for line in message.splitlines()))
    Console(stderr=True).print("[bold red]error:[/]", text, highlight=False, soft_wrap=True)
    sys.exit(code)


def _expected_errors() -> tuple[type[Exception], ...]:
    """Errors whose message is enough for a user. Imported after a failure only."""
    from tremble.envs.encoding import UnsupportedSpaceError
    from tremble.envs.faults import EnvironmentFaultError
    from tremble.records import CheckpointError
    from tremble.replay import DivergedError
    from tremble.settings import SettingsError
    from tremble.sweeps.local import SweepError

    return (
        SettingsError,
        UnsupportedSpaceError,
        EnvironmentFaultError,
        CheckpointError,
        DivergedError,
        SweepError,
        OSError,
    )


if __name__ == "__main__":
    main()
