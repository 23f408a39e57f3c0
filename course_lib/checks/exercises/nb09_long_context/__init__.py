"""Notebook 09: sequences that no device can hold, and attention over several."""
