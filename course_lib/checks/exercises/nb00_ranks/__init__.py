"""Notebook 00: how much memory training needs; ranks, messages, hangs, first collectives."""
