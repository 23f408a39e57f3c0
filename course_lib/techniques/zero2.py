"""ZeRO stage 2, which stands in the package `zero`."""

from .zero.zero2 import Zero2

__all__ = ["Zero2"]
