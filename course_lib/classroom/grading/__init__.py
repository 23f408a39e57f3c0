"""Grade a folder of submissions: find notebooks, take the answers out, run them apart, report."""

from .batch import grade

__all__ = ["grade"]
