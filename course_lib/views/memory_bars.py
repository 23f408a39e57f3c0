"""What lies in memory, and whether a device has room for it: one bar each, stacked by purpose."""

from course_lib.observe import Memory

from .palette import MEMORY
from .stacked_bars import Bars, stacked_bars
from .units import size_text
from .view import View


def memory_bars(bars: Bars, capacity: float | None = None, title: str = "") -> View:
    """Bars of bytes by what they are for (`palette.MEMORY` has the names), and a device's capacity.

    A bar of more than four times the capacity is cut; its bytes stand beside it.
    """
    for name, parts in bars.items():
        if unknown := set(parts) - set(MEMORY):
            raise ValueError(f"{name}: {sorted(unknown)} are none of {list(MEMORY)}")
    if capacity is not None and not capacity > 0:
        raise ValueError(f"capacity = {capacity} bytes must be more than 0")
    has = "" if capacity is None else f"a device has {size_text(capacity)}"
    verdicts = ("fits", "does not fit")
    return stacked_bars(bars, "bytes on a device", title, size_text, capacity, has, verdicts)


def run_memory(memory: Memory, title: str = "") -> View:
    """Each rank of a run at its own peak."""
    bars = {f"rank {rank}": parts for rank, parts in enumerate(memory.at_peak)}
    most = max(range(len(bars)), key=memory.peak.__getitem__)
    said = title or f"at each rank's peak; most on rank {most}, {size_text(memory.peak[most])}"
    return memory_bars(bars, title=said)
