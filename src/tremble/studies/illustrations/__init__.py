"""The paper's two illustrative figures."""
