"""What there is: agents, criteria, environments, studies, protocols."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from tremble.cli.console import console


@dataclass
class List:
    """Show what there is: agents, criteria, environments, studies; or every setting of one agent."""

    settings: str | None = None
    """Show the settings of this agent, with the values of --hyperparameters."""
    hyperparameters: str = "nchain"
    """Which column of hyperparameters: nchain, lunarlander, atari (the paper's), sb3_zoo, control."""

    def run(self) -> None:
        """Execute the command."""
        import tremble
        from tremble.criteria import criterion_names
        from tremble.presets import PRESETS, make
        from tremble.settings import describe
        from tremble.studies import STUDIES

        if self.settings:
            table = Table("setting", "value", title=f"{self.settings} ({self.hyperparameters})")
            for name, value in describe(make(self.settings, self.hyperparameters)).items():
                table.add_row(name, str(value))
            console.print(table)
            return
        for title, rows in {
            "agents": {name: about for name, (about, _) in PRESETS.items()},
            "criteria": criterion_names(),
            "environments": {name: "" for name in tremble.list_envs()},
            "studies": {name: study.about for name, study in STUDIES.items()},
        }.items():
            table = Table.grid(padding=(0, 3))
            for name, about in rows.items():
                table.add_row(f"  [bold]{name}[/]", Text(about))
            console.print(f"[bold underline]{title}[/]")
            console.print(table)
            console.print()


@dataclass
class Protocols:
    """Show how Atari scores are made: the published protocols side by side, or one of them with its sources.

    Examples:
      tremble protocols
      tremble protocols dopamine
    """

    name: Positional[str | None] = None
    """Show this one alone, with where each value was read and what its agents were trained with."""
    variants: bool = False
    """Show the variants of the paper's protocol too."""
    differences: bool = False
    """Leave out what they agree on."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.atari.protocol_tables import agent_table, one, side_by_side
        from tremble.atari.protocols import PROTOCOLS, find_protocol

        if self.name is not None:
            protocol = find_protocol(self.name)
            console.print(one(protocol))
            console.print(agent_table(protocol))
            return
        shown = list(PROTOCOLS.values())[: None if self.variants else 3]
        console.print(side_by_side(shown, only_differences=self.differences))
        console.print("≠ they differ.   One of them with its sources: tremble protocols NAME", highlight=False)
