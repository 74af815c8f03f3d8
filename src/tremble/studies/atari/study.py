"""Atari: chosen agents on chosen games under one published protocol, compared with published scores."""

from __future__ import annotations

from tremble.studies.atari.training import atari_study

STUDY = atari_study(
    "atari",
    "agents on Atari under a protocol; --set games=…, agents=…, protocol=…, frames=…",
    lambda runs: "",
    ("qrdqn", "dltv", "pqr"),
    title="Atari",
    games=("pong", "boxing", "breakout"),
)
