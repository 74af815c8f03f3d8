"""Agents from flat fields, and short forms of what tests ask of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from tremble.agent import Agent
from tremble.core import Transition, Use
from tremble.dist import ReturnDist
from tremble.learn import predict_taken
from tremble.learning_schedule import LearningSchedule
from tremble.networks import Network


def flat_agent(**fields: Any) -> Agent:
    """An `Agent` whose learning schedule is given field by field."""
    names = {field.name for field in dataclasses.fields(LearningSchedule)}
    learning = LearningSchedule(**{name: value for name, value in fields.items() if name in names})
    return Agent(learning=learning, **{name: value for name, value in fields.items() if name not in names})


def predict_each(agent: Agent, params: Network, obs: Any, use: Use = "choose", key: Any = None) -> ReturnDist:
    """Predicted distributions ``[batch, actions, atoms]``."""
    return agent.predict(params, obs, agent.query(use, key))


def predict_one(agent: Agent, params: Network, obs: Any, use: Use = "choose", key: Any = None) -> ReturnDist:
    """Predicted distributions ``[actions, atoms]`` at one observation."""
    return predict_each(agent, params, obs[None], use, key)[0]


def batch_losses(agent: Agent, params: Network, batch: Transition, target: ReturnDist, key: Any = None) -> Any:
    """Loss of each sample, and the predictions they are about."""
    predicted = predict_taken(agent, params, batch.obs_tm1, batch.action_tm1, key)
    return agent.representation.loss(predicted, target, batch.extra), predicted


def auxiliary_losses(agent: Agent, params: Network, target_params: Network, batch: Transition) -> Any:
    """The second loss of each sample, as `learn` computes it without a key."""
    predicted = predict_taken(agent, params, batch.obs_tm1, batch.action_tm1)
    return agent.representation.auxiliary_loss(params, target_params, batch, predicted, agent.query("online"))
