"""What the commands share: where they write to, and options that several of them have.

Text in f-strings for `console` is markup: what comes from files, environments or users goes through `escape.console`.
"""

from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import UseAppendAction, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from tremble.settings import whole_number

console = Console()

Assignments = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")]
"""Settings to change: --set delta_0=100 --set widths=128,128."""
TrackerNames = UseAppendAction[tuple[Literal["tensorboard", "wandb", "mlflow", "trackio"], ...]]


types = ConstructorRegistry()
"""How arguments of all commands are read where tyro's own rules do not suffice."""


@types.primitive_rule
def _whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Whole numbers also as 1e5 and 100_000."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda given: whole_number(given[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )
