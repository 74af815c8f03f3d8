"""Sweeps: many runs as data, worked off by any number of workers that share a directory."""
