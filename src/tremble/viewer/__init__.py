"""Seeing the return distribution."""
