"""Environments as training loops see them: the Gymnasium adaptor, JAX environments, and the registry of names."""
