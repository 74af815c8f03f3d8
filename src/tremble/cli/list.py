"""`tremble list` and `tremble protocols`: what there is, with every setting and where its value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import Assignments, console


@dataclass
class List:
    """List agents, criteria, environments and studies; or all settings of one agent, and where each value comes from.

    Examples:
      tremble list
      tremble list --settings pqr --hyperparameters lunarlander
      tremble list --settings rainbow --explain learning_rate --hyperparameters atari --protocol dqn_zoo
    """

    settings: str | None = None
    """Show the settings of this agent."""
    explain: str | None = None
    """Show what set this setting of the agent: defaults, the table of hyperparameters, the agent, its publication, or
    --set. The last one is in force."""
    hyperparameters: str = "nchain"
    """Table of hyperparameters: nchain, lunarlander, atari (the paper's), lunarlander_tuned, minatar, atari_small,
    sb3_zoo, control."""
    protocol: str | None = None
    """Protocol of an Atari study, with --hyperparameters atari; `tremble protocols` shows them."""
    set: Assignments = ()
    """Change a setting, as with `tremble train`."""

    def run(self) -> None:
        """Execute the command."""
        from tremble.settings import SettingsError

        if self.settings is not None:
            self._show_agent(self.settings)
        elif self.explain is not None:
            raise SettingsError("--explain needs an agent: tremble list --settings pqr --explain learning_rate")
        else:
            _show_names()

    def _show_agent(self, agent: str) -> None:
        from tremble.presets import resolve
        from tremble.settings import full_name, parse_assignments

        _, trace = resolve(agent, self.hyperparameters, self.protocol, parse_assignments(self.set))
        where = self.hyperparameters if self.protocol is None else f"{self.hyperparameters} under {self.protocol}"
        if self.explain is None:
            title, table = f"{agent} ({where})", Table("setting", "value", "set by")
            for name, assignments in trace.items():
                table.add_row(name, Text(escape.plain(assignments[-1].value)), assignments[-1].layer)
        else:
            name = full_name(self.explain, trace)
            title, table = f"{name} of {agent} ({where})", Table("layer", "value", "source")
            for assignment in trace[name]:
                style = "bold" if assignment is trace[name][-1] else "dim"
                cells = (assignment.layer, str(assignment.value), assignment.source)
                table.add_row(*(Text(escape.plain(cell), style=style) for cell in cells))
        console.print(Text(escape.plain(title), style="bold"))
        console.print(table)


def _show_names() -> None:
    for title, names in _sections():
        table = Table.grid(padding=(0, 3))
        for name, about in names.items():
            table.add_row(f"  [bold]{escape.console(name)}[/]", Text(about))
        console.print(f"[bold underline]{title}[/]")
        console.print(table)
        console.print()


def _sections() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every name with a line about it. Each section is printed before the next one is imported: agents need no JAX."""
    from tremble.presets import PRESETS

    yield "agents", {name: preset.about for name, preset in PRESETS.items()}
    from tremble.criteria import criterion_names

    yield "criteria", criterion_names()
    from tremble.networks import NETWORKS

    yield "networks", {name: about for name, (_, about) in NETWORKS.items()}
    from tremble.envs.registry import jax_env_names

    yield "environments", dict.fromkeys(jax_env_names(), "")
    from tremble.studies import STUDIES

    yield "studies", {name: study.about for name, study in STUDIES.items()}


@dataclass
class Protocols:
    """Compare the published protocols by which Atari scores are measured, or show one of them with its sources.

    Examples:
      tremble protocols
      tremble protocols dopamine
    """

    name: Positional[str | None] = None
    """Show only this protocol, with the source of each value and the settings of the agents published under it."""
    variants: bool = False
    """Include the variants of the paper's protocol."""
    differences: bool = False
    """Show only settings in which the protocols differ."""

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
