"""Torsos and heads; what a head's outputs mean is the representation's business."""

from tremble.networks.conv import MINATAR, ConvSpec
from tremble.networks.heads import Dueling, Head, HiddenBranch, batch_outputs, deepen_streams, make_head
from tremble.networks.implicit import ImplicitHead, embed_level
from tremble.networks.initialisation import initialise
from tremble.networks.layers import NoisyLinear, linear
from tremble.networks.network import Network, SideBySide, init_torso
from tremble.networks.torsos import Mlp, MlpSpec

__all__ = [
    "MINATAR",
    "ConvSpec",
    "Dueling",
    "Head",
    "HiddenBranch",
    "ImplicitHead",
    "Mlp",
    "MlpSpec",
    "Network",
    "NoisyLinear",
    "SideBySide",
    "batch_outputs",
    "deepen_streams",
    "embed_level",
    "init_torso",
    "initialise",
    "linear",
    "make_head",
]
