"""Notebook 06: what a parameter takes in memory, and ZeRO's ways to hold only a part of it."""
