"""LunarLander: the paper's figure, and the noise of its emulator."""
