"""One training run from its settings to its results: train and resume.

Both loops (inside XLA, and with Gymnasium environments) are driven by the same code, `run_loop`, through the interface
`tremble.training.loop.Loop`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tremble.agent import Agent
from tremble.envs.encoding import Actions, Encoder
from tremble.networks import choice_in_words
from tremble.settings import SettingsError
from tremble.training.callback import Callback
from tremble.training.consent import code_of_agent, code_of_environment, require_consent
from tremble.training.interrupt import deferred_signals
from tremble.training.lock import Lock
from tremble.training.loop import DEFAULT_CHUNK
from tremble.training.open_loop import open_loop
from tremble.training.result import Run
from tremble.training.run_directory import RunFiles
from tremble.training.run_in_progress import RunInProgress
from tremble.training.spec import CUSTOM, RunSpec
from tremble.training.trained import learner_shapes


def train(
    agent: str | Agent,
    env: Any,
    *,
    steps: int,
    seed: int = 0,
    out: str | Path | None = None,
    hyperparameters: str | None = None,
    env_options: dict[str, Any] | None = None,
    record_every: int = 500,
    n_envs: int = 1,
    parallel: bool = False,
    evaluate_every: int = 0,
    evaluate_episodes: int = 10,
    evaluate_steps: int = 0,
    evaluate_env: Any = None,
    final_episodes: int = 0,
    checkpoint_every: int | None = None,
    replay_file: str | Path | None = None,
    chunk: int = DEFAULT_CHUNK,
    trackers: Sequence[str] = (),
    callback: Callback | None = None,
    on_progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    on_message: Callable[[str], None] | None = None,
    **agent_options: Any,
) -> Run:
    """Train an agent on an environment and return the run.

    ``agent`` is a name from `tremble.list_agents()` or an `Agent`; further keyword arguments change its settings
    (``delta_0=100``). ``env`` is a name from `tremble.list_envs()` (these train inside XLA), a Gymnasium id,
    ``module:Class``, a function that makes an environment, or a ready-made one. Evaluations are in environments made in
    the same way, a ready-made one with its wrappers, or in ``evaluate_env`` (an id, a function or a ready-made one).
    ``final_episodes`` evaluates the last and the best weights once more after training, on seeds of their own.

    With ``out``, checkpoints and logs are written there; the same call, or `resume`, continues an interrupted run, bit
    for bit as if it had not been interrupted if the environment can be restored.
    ``callback`` is called with every row of metrics and every evaluation (`tremble.training.callback`): the numbers it
    returns are added to the row, and it may stop the run, which is then returned as it is.
    ``replay_file`` keeps the pictures of Atari's replay in a file instead of in memory.
    ``on_progress(step, row)`` is called after every ``chunk`` steps with the newest row of metrics, and
    ``on_message(text)`` with what the command line prints: neither changes the run. Before the first one the run
    compiles, which takes some seconds.

    Ctrl-C raises KeyboardInterrupt after the step under way; with ``out`` everything is saved before.
    """
    if isinstance(agent, Agent) and agent_options:
        raise SettingsError("settings by name go with an agent's name; change the Agent itself, or name a preset")
    spec = RunSpec(
        agent=agent if isinstance(agent, str) else CUSTOM,
        env=env if isinstance(env, str) else CUSTOM,
        steps=steps,
        seed=seed,
        hyperparameters=hyperparameters,
        agent_options=agent_options,
        env_options=env_options or {},
        record_every=record_every,
        n_envs=n_envs,
        parallel=parallel,
        evaluate_every=evaluate_every,
        evaluate_episodes=evaluate_episodes,
        evaluate_steps=evaluate_steps,
        final_episodes=final_episodes,
        evaluate_env=evaluate_env if isinstance(evaluate_env, str | None) else CUSTOM,
    )
    built = spec.build_agent() if isinstance(agent, str) else agent
    return run_loop(
        spec,
        built,
        env,
        None if out is None else Path(out),
        evaluate_env=evaluate_env,
        checkpoint_every=checkpoint_every,
        chunk=chunk,
        replay_file=None if replay_file is None else Path(replay_file),
        trackers=trackers,
        callback=callback,
        on_progress=on_progress,
        on_message=on_message,
    )


def resume(
    directory: str | Path,
    *,
    steps: int | None = None,
    agent: Agent | None = None,
    env: Any = None,
    evaluate_env: Any = None,
    trust_code: bool = False,
    **how: Any,
) -> Run:
    """Continue the run in a directory to its end with the settings recorded there.

    Objects that training was given (an `Agent`, a function that makes environments) are not in the files: give them
    again as ``agent``, ``env`` and ``evaluate_env``.

    ``steps`` lengthens the run, also one that is finished or that a callback stopped. Parameters and rows are then
    those of a run of that length, except that rows which only the old end had stay.

    A run whose environment, criterion or functions are somebody's own (``module:name``) names code to import: refused,
    unless ``trust_code`` is true.
    """
    directory = Path(directory)
    described = RunFiles(directory).described()
    spec = described.record("spec", RunSpec)
    given = {"agent": agent, "env": env, "evaluate_env": evaluate_env}
    named = {"agent": spec.agent, "env": spec.env, "evaluate_env": spec.evaluate_env}
    for name, value in given.items():
        if named[name] == CUSTOM and value is None:
            raise SettingsError(
                f"{directory} was trained with {name} given as an object, which its files do not hold: give it again, "
                f"tremble.resume({str(directory)!r}, {name}=...)"
            )
        if named[name] != CUSTOM and value is not None:
            raise SettingsError(f"{directory} was trained with {name} {named[name]!r}: leave {name}= out")
    if steps is not None and steps < spec.steps:
        raise SettingsError(f"{directory} is a run of {spec.steps:,} steps: it can be lengthened, not cut to {steps:,}")
    spec = spec if steps is None else dataclasses.replace(spec, steps=steps)
    recorded = described.settings()
    require_consent(described.path, code_of_agent(spec, recorded) | code_of_environment(spec), trust_code)
    agent = spec.rebuild_agent(recorded) if agent is None else agent
    # Before anything is allocated: the settings may ask for another network than the one that is there.
    if described.arrays:
        group = "state/learner" if any(name.startswith("state/") for name in described.arrays) else "learner"
        with described.reading():
            encoder, actions = described.record("encoder", Encoder), described.record("actions", Actions)
            described.tree(group, learner_shapes(agent, encoder, actions.n))
    env = spec.env if env is None else env
    return run_loop(spec, agent, env, directory, evaluate_env=evaluate_env, lengthen=steps is not None, **how)


def run_loop(
    spec: RunSpec,
    agent: Agent,
    env: Any,
    directory: Path | None,
    *,
    evaluate_env: Any = None,
    checkpoint_every: int | None = None,
    replay_file: Path | None = None,
    chunk: int = DEFAULT_CHUNK,
    lengthen: bool = False,
    lock: Lock | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    trackers: Sequence[str] = (),
    callback: Callback | None = None,
    on_progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    on_message: Callable[[str], None] | None = None,
) -> Run:
    """Open the loop of a run, restore what its directory holds, and train to the last step.

    ``lengthen``: the directory may hold the same run with fewer steps, or one that a callback stopped. ``lock`` is the
    directory's, if the caller holds it. ``should_stop`` is called at every step (or compiled chunk) and ends the call
    early: the run is saved, and returned as far as it is.
    """
    save_every = checkpoint_every or max(1000, spec.steps // 20)
    notify, on_message = on_message or _to_stderr, on_message or (lambda text: None)
    # Closed also on Ctrl-C and on errors: completed steps are saved.
    with deferred_signals(notify) as asked, closing(open_loop(spec, agent, env, replay_file)) as loop:
        on_message(loop.memory)
        if (choice := choice_in_words(loop.agent.network, loop.encoder.shape)) is not None:
            on_message(choice)
        with closing(RunInProgress(spec, env, loop, directory, save_every, evaluate_env, callback, lock)) as run:

            def stop() -> bool:
                return asked() is not None or should_stop()

            if run.start(trackers, lengthen):
                at_end = loop.t >= spec.steps and run.stopped is None
                hint = f"the run is finished; tremble resume {directory} --steps N lengthens it"
                on_message(hint if at_end else f"continuing at step {loop.t:,}, after some seconds of compiling")
            run.make_owed_evaluation(stop)
            while loop.t < spec.steps and run.stopped is None and not stop():
                run.advance(chunk, stop)
                on_progress(loop.t, run.summary())
            if (loop.t >= spec.steps or run.stopped is not None) and not stop():
                run.finish(stop)
            if run.stopped is not None:
                on_message(f"stopped at step {run.stopped.step:,}: {run.stopped.reason}")
        return run.result()  # while the loop is open: statistics may be in processes of the environments


def _to_stderr(text: str) -> None:
    print(f"tremble: {text}", file=sys.stderr, flush=True)
