"""ZeRO stage 1, which stands in the package `zero`."""

from .zero.zero1 import CarelessZero1, Zero1

__all__ = ["CarelessZero1", "Zero1"]
