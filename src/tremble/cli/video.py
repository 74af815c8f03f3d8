"""`tremble video`: an episode of a trained agent, as a video."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from tremble import escape
from tremble.cli.console import Assignments, console


@dataclass
class Video:
    """Write a video of an episode: the rendered environment and the return distributions predicted for all actions.

    Needs pip install 'tremble[video]', and no display.

    Examples:
      tremble video runs/pqr-CartPole-v1-s0 --out cartpole.mp4
      tremble video runs/pqr-CartPole-v1-s0 --criterion own --seed 3 --actions left right
    """

    run_directory: Positional[Path]
    """The directory of a run."""
    weights: Literal["newest", "best"] = "newest"
    """Weights of the newest checkpoint, or of the best evaluation during training."""
    out: Path | None = None
    """The video, .mp4 or .gif (default: episode-SEED.mp4 in the run's directory)."""
    seed: int = 0
    """Seed of the evaluation whose first episode is shown."""
    criterion: str = "mean"
    """Criterion to act by: `mean`, `own` (the agent's, as at the end of training), or a name of `tremble list`."""
    set: Assignments = ()
    """Change a setting of the criterion: --set eta=0.1."""
    epsilon: float = 0.0
    """Probability of a random action."""
    max_steps: int = 2000
    """Longest video, in steps."""
    fps: int = 30
    """Frames per second."""
    actions: tuple[str, ...] = ()
    """Names of the actions, for the legend."""
    trust_code: bool = False
    """Import the environment, criterion or functions that the run's files name as module:name."""

    def run(self) -> None:
        """Execute the command."""
        from rich.progress import Progress

        from tremble.settings import SettingsError, parse_assignments
        from tremble.training.consent import code_of_environment, require_consent
        from tremble.training.trained import load
        from tremble.viewer.video import check_format, open_for_pictures, play, write_video

        out = self.out or self.run_directory / f"episode-{self.seed}.mp4"
        check_format(out)
        agent = load(self.run_directory, weights=self.weights, trust_code=self.trust_code)
        assert agent.spec is not None
        require_consent(self.run_directory, code_of_environment(agent.spec), self.trust_code)
        if self.actions and len(self.actions) != agent.n_actions:
            raise SettingsError(f"--actions has {len(self.actions)} names, and the agent has {agent.n_actions} actions")
        env = open_for_pictures(agent.spec)
        scenes = play(
            agent,
            env,
            seed=self.seed,
            max_steps=self.max_steps,
            policy=agent.policy_by(self.criterion, self.epsilon, **parse_assignments(self.set)),
        )
        env.close()
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("drawing", total=len(scenes))
            write_video(
                scenes,
                out,
                fps=self.fps,
                names=self.actions or getattr(env.unwrapped, "action_names", None),
                on_frame=lambda done: progress.update(bar, completed=done),
            )
        console.print(
            f"{len(scenes)} steps, return {scenes[-1].total:.1f} before the last reward: [bold]{escape.console(out)}[/]"
        )
