"""What a row of the table is, and how two things are timed against each other."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Measurement:
    """One line of the table.

    `ratios` are ours to theirs, pair by pair; `limit` is the ratio that must not be exceeded.
    `floor` goes with a limit that was missed: what only the parts that cannot be left out take, as
    a ratio to the same theirs. Above the limit, nobody could have met it; below, the rest is ours.
    A measurement that is not a comparison has no ratios and says in `note` what was found, and
    in `values` the numbers with their units. Beside ratios, `note` says what they rest on.
    """

    what: str
    ratios: tuple[float, ...] = ()
    limit: float | None = None
    note: str = ""
    floor: "Measurement | None" = None
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.ratios) < 2:
            return self.ratios[0], self.ratios[0]
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    @property
    def met(self) -> bool:
        """A limit whose comparison could not be made is not met.

        A limit has two decimals, and so has what is held to it.
        """
        return self.limit is None or (bool(self.ratios) and round(self.median, 2) <= self.limit)

    def or_floor(self, what: str, ratios: Callable[[], tuple[float, ...]]) -> "Measurement":
        """This one; if it has missed its limit, with the floor, which is measured now."""
        return self if self.met else replace(self, floor=Measurement(what, ratios()))


@dataclass(frozen=True)
class Row:
    """A name for `--only`, what is compared, and the function that measures."""

    name: str
    title: str
    measure: Callable[[], list[Measurement]]


def paired(
    ours: Callable[[], object], theirs: Callable[[], object], *, pairs: int, warm_up: int = 2
) -> tuple[float, ...]:
    """Time the two in turn, A B B A A B ..., and return the ratio of each pair.

    A machine that slows down for a moment slows down both; changing who goes first cancels what
    the first one leaves behind for the second.
    """
    for _ in range(warm_up):
        ours()
        theirs()
    ratios = []
    for pair in range(pairs):
        order = (ours, theirs) if pair % 2 == 0 else (theirs, ours)
        seconds = {which: seconds_of(which) for which in order}
        ratios.append(seconds[ours] / seconds[theirs])
    return tuple(ratios)


def seconds_of(call: Callable[[], object]) -> float:
    """Seconds on the clock on the wall."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
