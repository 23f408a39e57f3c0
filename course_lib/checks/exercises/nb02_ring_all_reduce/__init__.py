"""Notebook 02: all-reduce from send and recv, what it costs, and training with it."""
