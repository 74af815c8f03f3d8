"""Atari: the paper's audit, scores, learning curves, schedules on Pong, QUOTA."""
