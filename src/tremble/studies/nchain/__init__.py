"""N-Chain: the paper's figures and tables, and how they depend on what the paper leaves open."""
