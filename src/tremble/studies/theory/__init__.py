"""Numerical checks of the paper's theorems."""
