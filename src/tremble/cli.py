"""The command `tremble`."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, UseAppendAction, arg, subcommand

console = Console()


@dataclass
class Study:
    """Reproduce a figure or table of the paper: train what is missing, then write data, figures and a report."""

    name: Positional[str]
    """Which one; `tremble list` shows them."""
    seeds: int | None = None
    """Seeds 0 to N-1 (default: the paper's number, or what the study's page says)."""
    quick: bool = False
    """A small version that shows the whole path in a minute or two; not a result."""
    out: Path | None = None
    """Where report, figures and data go (default: runs/NAME)."""
    store: Path = Path("runs/store")
    """Where trained runs are kept; studies share them, and an interrupted study goes on from there."""
    steps: int | None = None
    """Environment steps per run (default: 20000)."""
    budget_minutes: float | None = None
    """Start no new run after this long; the report says how many seeds each cell got."""
    jobs: int | None = None
    """Processes (default: one per core)."""
    report_only: bool = False
    """Train nothing; write the report from the runs there are."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Choose what a study leaves open: --set games=breakout,asterix --set agents=pqr,qrdqn (its page says what)."""

    def run(self) -> None:
        """Run it."""
        from tremble.settings import SettingsError, nearest
        from tremble.studies import STUDIES

        if self.name not in STUDIES:
            raise SettingsError(f"there is no study {self.name!r}; {nearest(self.name, STUDIES)}")
        _run_study(STUDIES[self.name], self, Path(f"runs/{self.name}"))


@dataclass
class Demo:
    """Train the paper's four agents on N-Chain and show what they did: about three minutes on two cores."""

    out: Path = Path("runs/demo")
    """Where report, figures and data go."""
    store: Path = Path("runs/store")
    """Where trained runs are kept; an interrupted demo goes on from there."""
    seeds: int | None = None
    """Seeds 0 to N-1 (default: 3)."""
    steps: int | None = None
    """Environment steps per run (default: 20000)."""
    full: bool = False
    """The paper's 10 seeds."""
    jobs: int | None = None
    """Processes (default: one per core)."""

    def run(self) -> None:
        """Run it."""
        from tremble.studies.demo import STUDY

        seeds = self.seeds or (10 if self.full else None)
        settings = Study(STUDY.name, seeds=seeds, out=self.out, store=self.store, steps=self.steps, jobs=self.jobs)
        _run_study(STUDY, settings, self.out, show_counts=True)


@dataclass
class Train:
    """Train one agent and keep the run: settings, metrics, evaluations, weights, and the state to continue from.

    Repeating the command continues an interrupted run, with the same numbers as if it had not been interrupted;
    `tremble resume DIRECTORY` does the same without repeating anything.

    Examples:
      tremble train pqr --env CartPole-v1 --steps 50000
      tremble train qrdqn --env LunarLander-v3 --steps 100000 --domain control --set delta_0=5000
      tremble train pqr --env my_package.my_env:MyEnv --steps 20000 --evaluate-every 2000
      tremble train pqr --env atari/Pong --protocol dqn_zoo --steps 1000000
      tremble train qrdqn --env CartPole-v1 --set criterion=cvar --set eta=0.1 --set criterion_for=behaviour
    """

    agent: Positional[str]
    """Which agent; `tremble list` shows them."""
    env: str = "nchain"
    """Environment: a name of `tremble list`, a Gymnasium id (CartPole-v1), module:Class for one of your own, or a game
    of Atari (atari/Pong)."""
    protocol: str | None = None
    """How an Atari game is played and learned (default: paper); `tremble protocols` shows all."""
    steps: int = 20_000
    """Environment steps."""
    seed: int = 0
    """One seed, one sequence of numbers."""
    out: Path | None = None
    """Run directory (default: runs/AGENT-ENV-sSEED)."""
    domain: str | None = None
    """Column of hyperparameters (default: the paper's for its own environments, `control` for all others)."""
    n_envs: int = 1
    """Environments stepped together."""
    parallel: bool = False
    """Give each environment a process of its own; worth it where a step takes milliseconds."""
    evaluate_every: int | None = None
    """Steps between two evaluations (default: a tenth of the run; none for environments that train inside XLA)."""
    evaluate_episodes: int = 10
    """Episodes of each evaluation."""
    replay_file: Path | None = None
    """Keep the pictures of Atari's replay in this file instead of in memory."""
    track: UseAppendAction[tuple[Literal["tensorboard", "wandb", "mlflow"], ...]] = ()
    """Send the metrics there too; needs pip install 'tremble[tracking]'."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change a setting of the agent: --set delta_0=100 --set widths=128,128. See `tremble list --settings AGENT`."""
    env_set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change an option of the environment: --env-set right_low=1 --env-set right_high=17."""

    def run(self) -> None:
        """Run it."""
        from tremble.envs import JAX_ENVS
        from tremble.envs.atari_games import is_atari
        from tremble.settings import SettingsError, parse_assignments
        from tremble.training.run import train

        name = f"{self.agent}-{self.env}-s{self.seed}".replace("/", "-").replace(":", "-")
        out = self.out or Path("runs") / name
        options = parse_assignments(self.env_set)
        if self.protocol is not None:
            if not is_atari(self.env):
                raise SettingsError(f"--protocol is about Atari (--env atari/Pong); {self.env} is none of its games")
            options["protocol"] = self.protocol
        every = self.evaluate_every
        if every is None:
            every = 0 if self.env in JAX_ENVS else max(1, self.steps // 10)

        def go(how: dict[str, Any]) -> Any:
            return train(
                self.agent, self.env, steps=self.steps, seed=self.seed, out=out, domain=self.domain,
                env_options=options, n_envs=self.n_envs, parallel=self.parallel, replay_file=self.replay_file,
                evaluate_every=every, evaluate_episodes=self.evaluate_episodes, trackers=self.track,
                **how, **parse_assignments(self.set),
            )  # fmt: skip

        _show_run(go, f"{self.agent} on {self.env}", self.steps, out)


@dataclass
class Resume:
    """Continue an interrupted run to its end; everything needed is in its directory."""

    run_directory: Positional[Path]
    """The directory given to `tremble train --out`."""
    track: UseAppendAction[tuple[Literal["tensorboard", "wandb", "mlflow"], ...]] = ()
    """Send the metrics there too."""

    def run(self) -> None:
        """Run it."""
        from tremble.training.files import RunFiles
        from tremble.training.run import resume
        from tremble.training.spec import RunSpec

        contents = RunFiles(self.run_directory).newest(check_blocks=False)
        spec = None if contents is None else RunSpec(**contents.meta["spec"])
        title, steps = ("resume", 1) if spec is None else (f"{spec.agent} on {spec.env}", spec.steps)
        _show_run(lambda how: resume(self.run_directory, trackers=self.track, **how), title, steps, self.run_directory)


@dataclass
class Evaluate:
    """Run episodes with a trained agent, and compare the returns it predicts with those it gets.

    Evaluation episodes have seeds of their own, apart from all seeds of training.

    Examples:
      tremble evaluate runs/pqr-CartPole-v1-s0
      tremble evaluate runs/pqr-CartPole-v1-s0 --criterion p_dltv --epsilon 0.001 --episodes 200
      tremble evaluate runs/pqr-CartPole-v1-s0 --criterion cvar --set eta=0.1
    """

    run_directory: Positional[Path]
    """The directory of a run."""
    episodes: int = 100
    """How many."""
    seed: int = 0
    """Seed of the evaluation."""
    criterion: str = "mean"
    """Act by this: `mean`, `own` (the agent's, as at the end of training), or a name of `tremble list`."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change a setting of the criterion: --set eta=0.1."""
    epsilon: float | None = None
    """Probability of a random action (default: 0; on Atari, what the protocol says)."""
    env_set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change an option of the environment, to see how the agent fares elsewhere."""

    def run(self) -> None:
        """Run it."""
        import numpy as np
        from rich.progress import Progress

        from tremble.report.statistics import mean_interval
        from tremble.settings import parse_assignments
        from tremble.training.checkpoint import write_text
        from tremble.training.evaluation import evaluate
        from tremble.training.run import evaluation_epsilon, evaluation_maker
        from tremble.training.trained import load

        agent = load(self.run_directory, trust_code=True)  # its environment is about to be run anyway
        assert agent.spec is not None
        spec = dataclasses.replace(agent.spec, env_options=agent.spec.env_options | parse_assignments(self.env_set))
        epsilon = evaluation_epsilon(spec) if self.epsilon is None else self.epsilon
        settings = parse_assignments(self.set)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("episodes", total=self.episodes)
            result = evaluate(
                agent, evaluation_maker(spec, spec.env), episodes=self.episodes, seed=self.seed,
                criterion=self.criterion, epsilon=epsilon,
                on_episode=lambda done: progress.update(bar, completed=done), **settings,
            )  # fmt: skip
        interval = mean_interval(list(result.returns))
        console.print(
            f"return {result.mean:.2f}  95 % [{interval.low:.2f}, {interval.high:.2f}]  "
            f"median {np.median(result.returns):.2f}  min {result.returns.min():.2f}  max {result.returns.max():.2f}  "
            f"over {self.episodes} episodes of {spec.env}"
        )
        calibration = result.calibration()
        title = "Is it calibrated? Share of episodes at or below the predicted quantile"
        table = Table("level", *calibration["coverage"], title=title)
        table.add_row("share", *[f"{x:.2f}" for x in calibration["coverage"].values()])
        console.print(table)
        console.print(
            f"discounted return from the start: predicted {calibration['mean_predicted']:.3f}, "
            f"happened {calibration['mean_happened']:.3f};  W1 {calibration['w1']:.3f}, W2 {calibration['w2']:.3f}"
        )
        if calibration["truncated"]:
            console.print(
                f"[yellow]{calibration['truncated']:.0%} of the episodes were cut by a time limit: their discounted "
                "returns lack what would have followed, which the predictions include.[/]"
            )
        acted_by = "-".join([self.criterion, *self.set]).replace("/", "-").replace(":", "-")
        out = self.run_directory / f"evaluation-{acted_by}-e{epsilon:g}-s{self.seed}.json"
        row = {"episodes": self.episodes, "seed": self.seed, "criterion": self.criterion, "epsilon": epsilon}
        row |= {f"criterion.{name}": value for name, value in settings.items()}
        write_text(out, json.dumps(row | result.row(), indent=1) + "\n")
        console.print(f"written to [bold]{out}[/]")


@dataclass
class Record:
    """Film an episode: the environment's picture beside the return distribution predicted for every action.

    Needs pip install 'tremble[video]'. Example: tremble record runs/pqr-CartPole-v1-s0 --out cartpole.mp4
    """

    run_directory: Positional[Path]
    """The directory of a run."""
    out: Path | None = None
    """The film, .mp4 or .gif (default: episode-SEED.mp4 in the run's directory)."""
    seed: int = 0
    """Which episode: evaluation episode 0 of this seed."""
    criterion: str = "mean"
    """Act by this: `mean`, `own` (the agent's, as at the end of training), or a name of `tremble list`."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = ()
    """Change a setting of the criterion: --set eta=0.1."""
    epsilon: float = 0.0
    """Probability of a random action."""
    max_steps: int = 2000
    """Stop filming after so many steps."""
    fps: int = 30
    """Frames per second."""
    actions: tuple[str, ...] = ()
    """Names of the actions, for the legend."""

    def run(self) -> None:
        """Run it."""
        from rich.progress import Progress

        from tremble.settings import SettingsError, parse_assignments
        from tremble.training.evaluation import acting_criterion
        from tremble.training.run import evaluation_maker
        from tremble.training.trained import load
        from tremble.viewer.video import play, write_video

        agent = load(self.run_directory, trust_code=True)  # its environment is about to be run anyway
        assert agent.spec is not None
        if self.actions and len(self.actions) != agent.n_actions:
            raise SettingsError(f"there are {agent.n_actions} actions, but {len(self.actions)} names")
        spec = dataclasses.replace(agent.spec, env_options=agent.spec.env_options | {"render_mode": "rgb_array"})
        env = evaluation_maker(spec, spec.env)()
        scenes = play(
            agent, env, seed=self.seed, epsilon=self.epsilon, max_steps=self.max_steps,
            criterion=acting_criterion(agent.agent, self.criterion, **parse_assignments(self.set)),
        )  # fmt: skip
        env.close()
        out = self.out or self.run_directory / f"episode-{self.seed}.mp4"
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("drawing", total=len(scenes))
            write_video(
                scenes, out, fps=self.fps, names=self.actions or getattr(env.unwrapped, "action_names", None),
                on_frame=lambda done: progress.update(bar, completed=done),
            )  # fmt: skip
        console.print(f"{len(scenes)} steps, return {scenes[-1].total:.1f} before the last reward: [bold]{out}[/]")


def _show_run(go: Callable[[dict[str, Any]], Any], title: str, steps: int, out: Path) -> None:
    """Train under a progress bar, then say what came of it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(title), BarColumn(), TextColumn("{task.completed:,}/{task.total:,}"),
        TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    names = ("reward_per_episode", "return", "evaluation", "loss", "delta", "coefficient", "epsilon")
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("train", total=steps, note="compiling")
        begin: tuple[float, int] | None = None

        def show(step: int, row: dict[str, Any]) -> None:
            nonlocal begin
            now = time.monotonic()
            if begin is None:
                begin = (now, step)
            speed = (step - begin[1]) / (now - begin[0]) if now > begin[0] and step > begin[1] else None
            parts = [f"{speed:,.0f} steps/s"] if speed else []
            parts += [f"{k} {row[k]:.3g}" for k in names if row.get(k)]
            progress.update(bar, completed=step, note="  ".join(parts))

        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *rest: console.print(f"[yellow]warning:[/] {message}")
            run = go({"on_progress": show, "on_message": lambda text: console.print(f"[dim]{text}[/]")})
    if len(run.snapshots):
        table = Table("action", "mean", "std", "5 %", "95 %", title="Return predicted at the start state")
        from tremble.dist import ReturnDist

        dist = ReturnDist(run.snapshots["atoms"][-1])
        for action in range(dist.atoms.shape[0]):
            d = dist[action]
            numbers = (d.mean(), d.std(), d.quantile(0.05), d.quantile(0.95))
            table.add_row(str(action), *[f"{float(x):.3f}" for x in numbers])
        console.print(table)
        console.print(f"optimal actions: {run.optimal_count:,} of {run.spec.steps:,}")
    if run.evaluations:
        title = f"Evaluations, {run.spec.evaluate_episodes} episodes each"
        table = Table("step", "mean return", "min", "max", title=title)
        for row in run.evaluations:
            shown = (row["mean"], min(row["returns"]), max(row["returns"]))
            table.add_row(f"{row['step']:,}", *[f"{x:.2f}" for x in shown])
        console.print(table)
    console.print(f"saved in [bold]{out}[/]" + ("" if run.log else f"   next: tremble evaluate {out}"))


@dataclass
class List:
    """Show what there is: agents, criteria, environments, studies; or every setting of one agent."""

    settings: str | None = None
    """Show the settings of this agent, with the values of --domain."""
    domain: str = "nchain"
    """Which column of hyperparameters: nchain, lunarlander, atari (the paper's), sb3_zoo, control."""

    def run(self) -> None:
        """Run it."""
        import tremble
        from tremble.criteria import criterion_names
        from tremble.presets import PRESETS, make
        from tremble.settings import describe
        from tremble.studies import STUDIES

        if self.settings:
            table = Table("setting", "value", title=f"{self.settings} ({self.domain})")
            for name, value in describe(make(self.settings, self.domain)).items():
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
        """Run it."""
        from tremble.envs.protocols import PROTOCOLS, find_protocol
        from tremble.report.protocol_tables import agent_table, one, side_by_side

        if self.name is not None:
            protocol = find_protocol(self.name)
            console.print(one(protocol))
            console.print(agent_table(protocol))
            return
        shown = list(PROTOCOLS.values())[: None if self.variants else 3]
        console.print(side_by_side(shown, only_differences=self.differences))
        console.print("≠ they differ.   One of them with its sources: tremble protocols NAME", highlight=False)


@dataclass
class Doctor:
    """Say whether this machine is ready: versions, cores, memory, disk; with --atari, play all games, add up a study.

    Examples:
      tremble doctor
      tremble doctor --atari --measure
      tremble doctor --atari --agent qrdqn --protocol dopamine --seeds 5 --frames-per-second 400
    """

    atari: bool = False
    """Play 2,000 frames of each of the paper's 55 games, and say what a study of them would take."""
    out: Path = Path("runs")
    """Where runs would go: its disk is looked at."""
    agent: str = "pqr"
    """The agent of the study."""
    protocol: str = "paper"
    """The protocol of the study; `tremble protocols` shows them."""
    frames: int | None = None
    """Frames of a run (default: the protocol's)."""
    games: int = 55
    """Games of the study."""
    seeds: int = 3
    """Seeds of the study."""
    jobs: int | None = None
    """Runs at a time (default: one per core)."""
    frames_per_second: float | None = None
    """How fast a run goes, to say how long the study takes."""
    measure: bool = False
    """Train for a moment to find out how fast a run goes; alone, with nothing beside it."""

    def run(self) -> None:
        """Run it."""
        from tremble.replay import readable
        from tremble.training import doctor

        found, here = doctor.versions(), doctor.machine(self.out)
        table = Table.grid(padding=(0, 3))
        for name, version in found.items():
            table.add_row(f"  {name}", version or "[yellow]not installed[/]")
        console.print(table)
        console.print(
            f"{here.system}, {here.cores} cores, memory {readable(here.memory)} ({readable(here.free_memory)} free), "
            f"disk {readable(here.free_disk)} free; JAX on {', '.join(here.devices)}", highlight=False, soft_wrap=True,
        )  # fmt: skip
        problems = doctor.complaints(found) if self.atari else []
        if self.atari and not problems:
            problems += self._bill(here) + self._play()
        for problem in problems:
            console.print(f"[bold red]problem:[/] {problem}", highlight=False, soft_wrap=True)
        if problems:
            sys.exit(1)
        console.print("[green]all is well[/]")

    def _bill(self, here: Any) -> list[str]:
        """Memory, disk and hours of a study; what there is not enough of."""
        from tremble.envs.protocols import find_protocol
        from tremble.replay import readable
        from tremble.training import doctor

        frames = self.frames or find_protocol(self.protocol).run_frames
        speed = self.frames_per_second
        if self.measure:
            console.print("measuring the speed of training, about a minute ...")
            speed = doctor.measure_frames_per_second(self.agent, self.protocol)
        bill = doctor.run_bill(self.agent, self.protocol, frames, speed)
        runs, jobs = self.games * self.seeds, self.jobs or here.cores
        title = f"{self.agent} under {self.protocol}: {self.games} games, {self.seeds} seeds, {frames:,} frames"
        table = Table("", "one run", f"{runs} runs, {jobs} at a time", title=title)
        together = min(jobs, runs)
        table.add_row("steps", f"{bill.steps:,}", f"{bill.steps * runs:,}")
        table.add_row("updates", f"{bill.updates:,}", f"{bill.updates * runs:,}")
        table.add_row("memory of replay", readable(bill.replay_bytes), readable(bill.replay_bytes * together))
        table.add_row("disk while it runs, at most", readable(bill.disk_bytes), readable(bill.disk_bytes * together))
        table.add_row("disk if all checkpoints stay", readable(bill.disk_bytes), readable(bill.disk_bytes * runs))
        if bill.hours is None or speed is None:
            table.add_row("hours", "?", "give --frames-per-second, or --measure")
        else:
            total = bill.hours * runs / together
            table.add_row(
                f"hours at {speed:,.0f} frames/s", f"{bill.hours:,.1f}", f"{total:,.0f} ({total / 24:,.1f} days)"
            )
        console.print(table)
        problems = []
        if bill.replay_bytes * together > here.free_memory:
            problems.append(
                f"{together} replays at a time need {readable(bill.replay_bytes * together)} of memory, "
                f"{readable(here.free_memory)} are free: fewer jobs, a smaller memory_size, or a replay file"
            )
        if bill.disk_bytes * together > here.free_disk:
            problems.append(
                f"checkpoints need up to {readable(bill.disk_bytes * together)} of disk, "
                f"{readable(here.free_disk)} are free"
            )
        return problems

    def _play(self) -> list[str]:
        """Some frames of every game."""
        from rich.progress import Progress

        from tremble.training import doctor

        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("games", total=len(doctor.PAPER_GAMES))
            checks = doctor.check_games(self.protocol, on_game=lambda check: progress.advance(bar))
        frames, seconds = sum(c.frames for c in checks), sum(c.seconds for c in checks)
        slowest = min((c for c in checks if c.seconds), key=lambda c: c.frames / c.seconds, default=None)
        speed = f", {frames / seconds:,.0f} frames/s without an agent (slowest: {slowest.game})" if slowest else ""
        well = sum(not c.problem for c in checks)
        console.print(f"{well} of {len(checks)} games play as they should{speed}", highlight=False)
        return [f"{c.game}: {c.problem}" for c in checks if c.problem]


@dataclass
class Illustrate:
    """Draw the paper's two illustrative figures with the library's own criteria (nothing is trained)."""

    out: Path = Path("runs/illustrate")
    """Where the figures go."""

    def run(self) -> None:
        """Run it."""
        from tremble.studies.illustrate import illustrate

        illustrate(self.out)
        console.print(f"figures in [bold]{self.out}[/]")


def _run_study(study, settings: Study, default_out: Path, show_counts: bool = False) -> None:  # type: ignore[no-untyped-def]
    from tremble.settings import SettingsError, parse_assignments
    from tremble.studies.nchain_counts import count_table
    from tremble.studies.runner import Options, collect, run_study

    seeds = settings.seeds or (study.quick_seeds if settings.quick else study.seeds)
    steps = settings.steps or (study.quick_steps if settings.quick else study.steps)
    if seeds < 1 or steps < 1000:
        raise SettingsError("a study needs at least one seed and 1,000 steps")
    options = Options(
        settings.out or default_out, settings.store, seeds, steps, settings.quick,
        settings.budget_minutes, settings.jobs, settings.report_only, study.chosen(parse_assignments(settings.set)),
    )  # fmt: skip
    report = run_study(study, options, console)
    if show_counts:
        console.print(_as_rich(count_table(collect(study, dataclasses.replace(options, report_only=True), console))))
    console.print(f"report: [bold]{report}[/]   figures and data beside it")


def _as_rich(markdown: str) -> Table:
    """A markdown table for the terminal."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in markdown.strip().splitlines()]
    table = Table(*lines[0])
    for line in lines[2:]:
        table.add_row(*line)
    return table


Command = (
    Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Record, subcommand("record")]
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
    from tremble.envs.adaptor import EnvironmentFaultError
    from tremble.envs.encoding import UnsupportedSpaceError
    from tremble.settings import SettingsError
    from tremble.training.checkpoint import CheckpointError
    from tremble.training.pool import PoolError

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
