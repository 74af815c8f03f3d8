"""Hyperparameters for the worlds: the paper's for N-Chain, and ours for MinAtar."""

from __future__ import annotations

from tremble.hyperparameters import Hyperparameters
from tremble.networks import MINATAR, ConvSpec, MlpSpec

NCHAIN = Hyperparameters(
    batch_size=64,
    n_quantiles=200,
    memory_size=1_000_000,
    learning_rate=5e-5,
    gamma=0.9,
    target_update_interval=25,
    start_steps=500,
    epsilon_decay_steps=2_500,
    delta_0=5e2,
    widths=(64, 64),
    support=(-4.0, 16.0),
    network=MlpSpec(),
)
"""The paper's, for N-Chain."""

# Not the paper's: MinAtar's own (Young and Tian 2019) for DQN, with Adam in place of RMSProp at the same learning rate,
# 50 quantiles (200 nearly double the time of an update), and the perturbation fading as on LunarLander, where Delta_t
# falls to 1 halfway through: after 500,000 of the million steps these runs are made of. c stays 50.
MINATAR_GAMES = Hyperparameters(
    batch_size=32,
    n_quantiles=50,
    memory_size=100_000,
    learning_rate=2.5e-4,
    gamma=0.99,
    target_update_interval=1_000,
    start_steps=5_000,
    epsilon_end=0.1,
    epsilon_decay_steps=100_000,
    delta_0=5e5,
    widths=(128,),
    support=(0.0, 25.0),  # no reward is negative; what falls outside shows in the metrics as clipped mass
    network=ConvSpec(MINATAR, scale=1.0),
)
