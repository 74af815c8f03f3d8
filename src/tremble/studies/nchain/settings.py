"""Settings of the N-Chain studies, as data."""

from __future__ import annotations

from typing import Any

from tremble.studies.kit import Cell, Options

AGENTS = ("qrdqn", "dltv", "p_dltv", "pqr")
"""The four agents of the paper."""

PAIRS = ((8, 10), (7, 11), (6, 12), (5, 13), (4, 14), (3, 15), (2, 16), (1, 17))
"""Means of the right end's two Gaussians; their mean is 9 throughout."""

GRID = (1, 5, 10, 50, 100, 500, 1000, 5000)
"""Values of c and delta_0 in the paper's sensitivity figure."""

BETAS = (0.05, 0.1, 0.5, 1.0)
"""Values of beta in the paper's table of hyperparameters."""

SCALES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Factors on all rewards."""

PAPER_COUNTS: dict[str, tuple[int, ...]] = {
    "qrdqn": (12293, 11381, 11827, 12108, 10041, 11419, 9696, 11619),
    "dltv": (9997, 9172, 9646, 9251, 7941, 6964, 7896, 7257),
    "p_dltv": (14344, 14497, 13769, 15507, 14469, 14034, 14068, 13404),
    "pqr": (14546, 15018, 14693, 15142, 15361, 13859, 14602, 14354),
}
"""The paper's appendix table: total counts of the optimal action, mean of 4 seeds, one column per pair."""

MAIN_PAIR = PAIRS.index((5, 13))


def main_cells(options: Options) -> list[Cell]:
    """The four agents at the paper's settings."""
    return [Cell(agent, agent) for agent in AGENTS]


def pair_options(pair: tuple[int, int]) -> dict[str, Any]:
    """Environment options for a pair; empty for the default one, so that its runs are shared."""
    return {} if pair == PAIRS[MAIN_PAIR] else {"right_low": float(pair[0]), "right_high": float(pair[1])}


def variance_cells(options: Options) -> list[Cell]:
    """Four agents by eight pairs."""
    pairs = PAIRS[::3] if options.quick else PAIRS
    return [Cell(f"{agent} {pair}", agent, {}, pair_options(pair)) for pair in pairs for agent in AGENTS]


def sensitivity_cells(options: Options) -> list[Cell]:
    """c or delta_0 for the three criteria, beta for PQR, reward scales for all, QR-DQN as the reference."""
    grid = GRID[::3] if options.quick else GRID
    betas = BETAS[::3] if options.quick else BETAS
    scales = SCALES[::2] if options.quick else SCALES
    knobs = (("dltv", "c"), ("p_dltv", "c"), ("pqr", "delta_0"))
    cells = [Cell("qrdqn", "qrdqn")]
    cells += [Cell(f"{a} {knob}={v}", a, {knob: float(v)}) for v in grid for a, knob in knobs]
    cells += [Cell(f"pqr beta={v}", "pqr", {"beta": v}) for v in betas]
    cells += [Cell(f"{a} scale={v:g}", a, {}, {"reward_scale": v}) for v in scales for a in AGENTS]
    return cells


READINGS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, {}, AGENTS),
    "reward on entering": ({}, {"reward_on": "enter"}, AGENTS),
    "width 128": ({"widths": [128, 128]}, {}, AGENTS),
    "Adam epsilon 1e-8": ({"adam_epsilon": 1e-8}, {}, AGENTS),
    "LeCun initialisation": ({"initialisation": "lecun_normal"}, {}, AGENTS),
    "thermometer encoding": ({}, {"encoding": "thermometer"}, AGENTS),
    "t counts updates": ({"t_unit": "updates"}, {}, AGENTS[1:]),
    "behaviour only": ({"criterion_for": "behaviour"}, {}, AGENTS[1:]),
    "target only": ({"criterion_for": "target"}, {}, AGENTS[1:]),
    "held for an episode": ({"resample_noise_every": "episode"}, {}, AGENTS[2:]),
}
"""Alternative readings of the paper, one factor at a time: agent options, environment options, affected agents."""

CONTROLS: dict[str, dict[str, Any]] = {
    "greedy (no exploration)": {"epsilon_start": 0.0, "epsilon_end": 0.0},
    "epsilon to 0.05": {"epsilon_end": 0.05},
    "epsilon over 10k steps": {"epsilon_decay_steps": 10_000.0},
}
"""QR-DQN with other amounts of exploration; all are reported."""


def readings_cells(options: Options) -> list[Cell]:
    """All readings, then the controls."""
    cells = [
        Cell(f"{reading} | {agent}", agent, dict(agent_options), dict(env_options))
        for reading, (agent_options, env_options, agents) in READINGS.items()
        for agent in agents
    ]
    return cells + [Cell(f"control: {name} | qrdqn", "qrdqn", dict(change)) for name, change in CONTROLS.items()]
