"""The command `tremble`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text
from tyro.conf import subcommand

from tremble.cli.console import console
from tremble.cli.curves import Curves
from tremble.cli.doctor import Doctor
from tremble.cli.evaluate import Evaluate, Record
from tremble.cli.list import List, Protocols
from tremble.cli.study import Demo, Illustrate, Study
from tremble.cli.train import Resume, Train

Command = (
    Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Record, subcommand("video")]
    | Annotated[Curves, subcommand("curves")]
    | Annotated[Study, subcommand("study")]
    | Annotated[Demo, subcommand("demo")]
    | Annotated[Protocols, subcommand("protocols")]
    | Annotated[Doctor, subcommand("doctor")]
    | Annotated[Illustrate, subcommand("illustrate")]
    | Annotated[List, subcommand("list")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point; expected failures are one message and a non-zero exit. ``arguments`` default to the process's."""
    sys.path.append(str(Path.cwd()))  # so that module:name may be a file of yours, here
    command = tyro.cli(
        Command,
        prog="tremble",
        args=arguments,
        description="Distributional reinforcement learning with randomised risk criteria.",
    )
    from tremble.envs.encoding import UnsupportedSpaceError
    from tremble.envs.gym import EnvironmentFaultError
    from tremble.settings import SettingsError
    from tremble.studies.pool import PoolError
    from tremble.training.checkpoint import CheckpointError

    expected = (SettingsError, UnsupportedSpaceError, EnvironmentFaultError, CheckpointError, PoolError, OSError)

    try:
        command.run()
    except KeyboardInterrupt:
        console.print("\n[yellow]interrupted.[/] What was finished is kept: repeat the command to go on.")
        sys.exit(130)
    except expected as error:
        Console(stderr=True).print("[bold red]error:[/]", Text(str(error)), highlight=False, soft_wrap=True)
        sys.exit(1)
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    main()
