"""Torsos and heads; what a head's outputs mean is the representation's business."""

from tremble.networks.conv import MINATAR, NATURE, ConvSpec, ConvTorso
from tremble.networks.heads import Answered, Dueling, Head, HiddenBranch, Plain, deepen_streams, make_head
from tremble.networks.implicit import ImplicitHead
from tremble.networks.initialisation import Initialisation, initialise
from tremble.networks.noisy import NoisyLinear
from tremble.networks.side_by_side import SideBySide, side_by_side
from tremble.networks.torsos import Mlp, MlpSpec

__all__ = [
    "MINATAR",
    "NATURE",
    "Answered",
    "ConvSpec",
    "ConvTorso",
    "Dueling",
    "Head",
    "ImplicitHead",
    "Initialisation",
    "Mlp",
    "MlpSpec",
    "NoisyLinear",
    "Plain",
    "SideBySide",
    "initialise",
    "HiddenBranch",
    "make_head",
    "deepen_streams",
    "side_by_side",
]
