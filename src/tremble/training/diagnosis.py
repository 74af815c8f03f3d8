"""Diagnostics of a learner, the same in both loops."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Num, Shaped

from tremble.agent import Agent, LearnerState
from tremble.core import Clock, RandomStream, Transition, stream_key
from tremble.learn import learn


class Diagnosis(eqx.Module):
    """Predictions and metrics at one time."""

    atoms: Float[Array, "*runs actions atoms"]
    """Predicted return distributions at a start state, as atoms of equal mass."""
    scores: Float[Array, "*runs actions"]
    """What the criterion makes of them, with the draw of that step."""
    numbers: dict[str, Num[Array, "*runs"]]
    """Scalars for the metrics table."""


def diagnose(
    agent: Agent, learner: LearnerState, seed: Any, obs: Shaped[Array, "*obs"], batch: Transition | None, clock: Clock
) -> Diagnosis:
    """Predict at a start state and compute one update's diagnostics, without changing the learner.

    ``batch`` is None where nothing can be sampled yet. Before learning starts, the loss is that of the parameters as
    they were initialised.
    """
    dist = agent.predict(learner.params, obs[None])[0]
    n_actions = dist.atoms.shape[0]
    noise = agent.draw_act(stream_key(seed, RandomStream.ACT, clock.transitions), n_actions).criterion
    numbers: dict[str, Any] = {
        "updates": clock.updates,
        "episodes": clock.episodes,
        "epsilon": agent.chooser.epsilon(clock),
        "learning_rate": agent.optimiser.rate(clock.updates),
        **agent.behaviour_criterion.metrics(noise, clock),
        **agent.representation.behaviour_metrics(clock),
    }
    if batch is not None:
        draw = agent.draw_learn(stream_key(seed, RandomStream.DIAGNOSE, clock.transitions))
        key = stream_key(seed, RandomStream.PREDICT_TO_LEARN, clock.transitions) if agent.random_predictions else None
        _, info = learn(agent, learner, batch, draw, clock, key)
        numbers |= {
            "loss": info.loss,
            "gradient_norm": info.gradient_norm,
            "crossing_rate": info.crossing_rate,
            "selection_changed": info.selection_changed,
            **info.metrics,
        }
    return Diagnosis(dist.equal_atoms(), agent.behaviour_criterion.score(dist, noise, clock), numbers)
