"""Loops that train agents, and the files they leave."""
