"""`tremble list` and `tremble protocols`: what there is, with every setting and where its value comes from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from rich.padding import Padding
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
      tremble list environments
      tremble list minigrid
      tremble list --settings pqr --hyperparameters lunarlander
      tremble list --settings rainbow --explain learning_rate --hyperparameters atari --protocol dqn_zoo
    """

    about: Positional[str | None] = None
    """Only this section, or what has this text in its name or description; also the ids of Atari and Gymnasium."""
    settings: str | None = None
    """Show the settings of this agent: value, meaning, what is allowed, and where the value comes from."""
    explain: str | None = None
    """Show what set this setting of the agent: defaults, the table of hyperparameters, the agent, its publication, or
    --set. The last one is in force."""
    hyperparameters: str = "nchain"
    """Table of hyperparameters; `tremble list hyperparameters` shows them."""
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
        elif self.about is not None:
            _show_about(self.about)
        else:
            for title, names in _sections():
                _show_section(title, names)
            _show_ids()

    def _show_agent(self, agent: str) -> None:
        from tremble.cli.setting_help import settings_help
        from tremble.presets import resolve
        from tremble.settings import full_name, parse_assignments

        made, trace = resolve(agent, self.hyperparameters, self.protocol, parse_assignments(self.set))
        where = self.hyperparameters if self.protocol is None else f"{self.hyperparameters} under {self.protocol}"
        if self.explain is None:
            console.print(Text(escape.plain(f"{agent} ({where})"), style="bold underline"))
            words = settings_help(made)
            for name, assignments in trace.items():
                last = assignments[-1]
                value, source = (escape.plain(text) for text in (last.value, f"{last.layer}: {last.source}"))
                console.print(Text.assemble((escape.plain(name), "bold"), f" = {value}   ", (source, "dim")))
                meaning = " ".join(filter(None, (words[name].meaning, _bracketed(words[name].allowed))))
                console.print(Padding(Text(escape.plain(meaning)), (0, 0, 0, 4)))
            return
        name = full_name(self.explain, trace)
        title, table = f"{name} of {agent} ({where})", Table("layer", "value", "source")
        for assignment in trace[name]:
            style = "bold" if assignment is trace[name][-1] else "dim"
            cells = (assignment.layer, str(assignment.value), assignment.source)
            table.add_row(*(Text(escape.plain(cell), style=style) for cell in cells))
        console.print(Text(escape.plain(title), style="bold"))
        console.print(table)


def _bracketed(text: str) -> str:
    return f"({text})" if text else ""


def _show_about(text: str) -> None:
    """One section, or everything with this text; an error that names the nearest if there is nothing."""
    from tremble.settings import SettingsError

    wanted, known = text.lower(), []
    sections = []
    for title, names in chain(_sections(), _id_sections()):
        if wanted in (title.lower(), title.lower().rstrip("s"), title.split()[0].lower()):
            sections = [(title, names)]
            break
        known += [title, *names]
        found = {name: line for name, line in names.items() if wanted in f"{name}\n{line}".lower()}
        if found:
            sections.append((title, found))
    if not sections:
        close = difflib.get_close_matches(text, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else "`tremble list` without it shows everything"
        raise SettingsError(f"nothing here is called {text!r} or described by it; {hint}")
    for title, names in sections:
        _show_section(title, names)


def _show_section(title: str, names: Mapping[str, str]) -> None:
    """A title, then a line for each name; without descriptions, the names one after the other."""
    console.print(f"[bold underline]{title}[/]")
    if any(names.values()):
        table = Table.grid(padding=(0, 3))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, line in names.items():
            table.add_row(f"  [bold]{escape.console(name)}[/]", Text(escape.plain(line)))
        console.print(table)
    else:
        console.print(Padding(Text("  ".join(map(escape.plain, names))), (0, 0, 0, 2)))
    console.print()


def _show_ids() -> None:
    """How many further ids there are, and how to list them."""
    (_, atari), (_, gymnasium) = _id_sections()
    console.print(
        f"Environments are also {len(atari)} games of Atari (`tremble list atari`) and every Gymnasium id with\n"
        f"discrete actions; {len(gymnasium)} are registered here (`tremble list gymnasium`, `tremble list cartpole`).\n"
        "One section: `tremble list agents`. An agent's settings: `tremble list --settings pqr`.",
        highlight=False,
    )


def _sections() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every name with a line about it. Each is shown before the next is imported: the first four need no JAX."""
    from tremble.presets import PRESETS

    yield "agents", {name: preset.about for name, preset in PRESETS.items()}
    from tremble.hyperparameters import about_hyperparameters

    yield "hyperparameters", about_hyperparameters()
    from tremble.envs.registry import about_jax_envs

    yield "environments", about_jax_envs()
    from tremble.studies import about_studies

    yield "studies", about_studies()
    from tremble.criteria import criterion_names

    yield "criteria", criterion_names()
    from tremble.networks import NETWORKS

    yield "networks", {name: about for name, (_, about) in NETWORKS.items()}
    from tremble.representations import REPRESENTATIONS

    yield "representations", {name: _first_sentence(make.__doc__) for name, make in REPRESENTATIONS.items()}
    from tremble.optimisers import Adam, RMSProp

    yield "optimisers", {name: _first_sentence(make.__doc__) for name, make in (("adam", Adam), ("rmsprop", RMSProp))}


def _id_sections() -> Iterator[tuple[str, Mapping[str, str]]]:
    """Ids of Gymnasium: too many to list unasked."""
    import gymnasium

    from tremble.atari.games import GAMES, id_of

    games = [id_of(rom) for rom in GAMES]
    yield "atari games", dict.fromkeys(games, "")
    yield "gymnasium ids", dict.fromkeys(sorted(set(gymnasium.registry) - set(games)), "")


def _first_sentence(text: str | None) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join((text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


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
