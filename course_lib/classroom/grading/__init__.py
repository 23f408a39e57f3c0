"""Grade a folder of submissions: take the answers out, run them in a sandbox, report."""

from .batch import grade

__all__ = ["grade"]
