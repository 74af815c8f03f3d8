"""What the commands share: where they write to, and options that several of them have.

Text in f-strings for `console` is markup: what comes from files, environments or users goes through `escape.console`.
"""

from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import UseAppendAction, arg

console = Console()

Assignments = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")]
"""Settings to change: --set delta_0=100 --set widths=128,128."""
TrackerNames = UseAppendAction[tuple[Literal["tensorboard", "wandb", "mlflow"], ...]]
