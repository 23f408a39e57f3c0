"""Tables of what grows: the same work in sizes that double."""

import statistics
from collections.abc import Iterable, Mapping

from tests.bench.measurement import Measurement


def growing(found: Iterable[tuple[str, Mapping[str, float]]]) -> list[Measurement]:
    """A line for each size and the numbers found for it, by unit.

    The first number is the one that grows: the line says how many times the one above it is.
    """
    lines: list[Measurement] = []
    for what, values in found:
        note = ", ".join(f"{value:.3g} {unit}" for unit, value in values.items())
        unit, value = next(iter(values.items()))
        if lines:
            note += f"; {unit} {value / lines[-1].values[unit]:.2f} times the one above"
        lines.append(Measurement(what, note=note, values=values))
    return lines


def why(reason: str) -> Measurement:
    """What makes it grow, in a sentence with numbers from the lines above it."""
    return Measurement("why", note=reason)


def middle(seconds: Iterable[float]) -> float:
    """The median, in milliseconds."""
    return 1000 * statistics.median(seconds)
