"""ZeRO stage 3, which stands in the package `zero`."""

from .zero.zero3 import Zero3

__all__ = ["Zero3"]
