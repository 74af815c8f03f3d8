"""MinAtar: three games, four agents."""
