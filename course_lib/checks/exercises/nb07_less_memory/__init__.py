"""Notebook 07: less memory for the same model: precision, the host's memory, recomputing."""
