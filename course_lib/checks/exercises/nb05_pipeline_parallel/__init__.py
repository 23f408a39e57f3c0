"""Notebook 05: pipelines as tables, what they cost, and running them."""
