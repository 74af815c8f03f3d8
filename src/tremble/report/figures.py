"""Style of all figures: colours and names of agents, Matplotlib defaults; saved as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

COLOURS = {
    "qrdqn": "#6b7280",
    "dltv": "#d1495b",
    "p_dltv": "#e09f3e",
    "pqr": "#2a6f97",
    "dqn": "#9a8c98",
    "iqn": "#5b8c5a",
    "rainbow": "#7b5ea7",
    "oracle": "#111111",
    "left": "#2a6f97",
    "right": "#d1495b",
}
NAMES = {
    "qrdqn": "QR-DQN",
    "dltv": "DLTV",
    "p_dltv": "p-DLTV",
    "pqr": "PQR",
    "dqn": "DQN",
    "iqn": "IQN",
    "rainbow": "Rainbow",
}

plt.rcParams.update(
    {
        "figure.dpi": 110,
        "savefig.dpi": 160,
        "savefig.bbox": "tight",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e5e7eb",
        "grid.linewidth": 0.7,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "svg.hashsalt": "tremble",
        "svg.fonttype": "none",
    }
)


def name_of(agent: str) -> str:
    """The name that papers use for an agent."""
    return NAMES.get(agent, agent)


def new(rows: int = 1, columns: int = 1, width: float = 6.0, height: float = 4.0, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes."""
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)


def save(figure: Any, path: Path) -> None:
    """Write ``path.png`` and ``path.svg`` and close the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without dates, equal data give equal files.
    figure.savefig(path.with_suffix(".png"), metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def close(figure: Any) -> None:
    """Forget a figure that was not written by `save`."""
    plt.close(figure)


def few_ticks(most: int) -> Any:
    """Ticks of a small panel: round numbers, at most so many intervals."""
    return MaxNLocator(most)


def thousands(axis: Any) -> None:
    """Tick labels like 500, 5k, 10k, 2M."""
    axis.set_major_formatter(lambda value, _: short_number(value))


def short_number(value: float) -> str:
    """``5k`` for 5,000 and ``2M`` for two million."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"
