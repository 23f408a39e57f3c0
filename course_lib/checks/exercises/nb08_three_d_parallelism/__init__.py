"""Notebook 08: three axes at once, where they lie, and what a cluster makes of them."""
