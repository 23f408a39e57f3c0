"""The schedules by the names that papers give them."""

from collections.abc import Callable

from .gpipe import gpipe
from .interleaved import interleaved
from .one_f_one_b import one_f_one_b
from .schedule import Schedule
from .zero_bubble import zb_h1

BY_NAME: dict[str, Callable[[int, int, int], Schedule]] = {
    "GPipe": lambda p, m, v: gpipe(p, m),
    "1F1B": lambda p, m, v: one_f_one_b(p, m),
    "interleaved": interleaved,
    "ZB-H1": lambda p, m, v: zb_h1(p, m),
}
"""The schedules by the names that papers give them, of (p, m, v); only `interleaved` has a v."""
