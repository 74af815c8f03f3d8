"""The paper's theorems, run."""
