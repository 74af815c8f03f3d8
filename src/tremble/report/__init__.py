"""Statistics, tables and figures; knows nothing about agents."""
