"""Torsos and heads; what a head's outputs mean is the representation's business."""

from tremble.networks.conv import MINATAR, NATURE, ConvSpec, ConvTorso
from tremble.networks.heads import Dueling, Head, HiddenBranch, Plain, batch_outputs, deepen_streams, make_head
from tremble.networks.implicit import ImplicitHead
from tremble.networks.initialisation import Initialisation, initialise
from tremble.networks.network import Network, SideBySide, Torso, init_torso
from tremble.networks.noisy import NoisyLinear
from tremble.networks.torsos import Mlp, MlpSpec

__all__ = [
    "MINATAR",
    "NATURE",
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
    "Network",
    "SideBySide",
    "Torso",
    "init_torso",
    "initialise",
    "HiddenBranch",
    "batch_outputs",
    "make_head",
    "deepen_streams",
]
