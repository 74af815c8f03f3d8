"""Where commands write to."""

from rich.console import Console

console = Console()
