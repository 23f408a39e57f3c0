"""Buffers in flight: what a send still reads and a receive still fills, until someone waits."""

import itertools
import weakref
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from .calls import Call
from .events import CommEvent
from .extents import Extent, has_memory, reach
from .frames import in_techniques

# gloo fills the results of these from buffers of its own, which torch counts as writes too.
_FILLED_BY_COPY = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


@dataclass(slots=True)
class _Flight:
    """An operation under way.

    extents: its memory.
    versions: weak references to its tensors, with torch's count of writes to them so far.
    told: the kinds of trap already noted about it.
    landing: a wait for it has begun, within which nobody writes but gloo itself.
    exposed: a line of the learner issued it, and not one of the course's techniques.
    """

    event: CommEvent
    extents: list[Extent] = field(default_factory=list)
    versions: list[tuple[weakref.ref, int]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    landing: bool = False
    exposed: bool = True


class Flights:
    """All operations that were issued and not yet waited for."""

    def __init__(self) -> None:
        self._open: dict[int, _Flight] = {}
        # (start, number, extent, whether it is written to, flight), sorted by address
        self._extents: list[tuple[int, int, Extent, bool, _Flight]] = []
        self._numbers = itertools.count()
        self._longest = 0  # bytes of any extent so far
        self.exposed = 0  # how many of them the learner issued

    def __bool__(self) -> bool:
        return bool(self._open)

    def start(self, event: CommEvent, call: Call, results: Iterable[torch.Tensor] = ()) -> None:
        """`event` is under way; `results` are buffers that it made itself."""
        reads = [tensor for tensors in call.reads.values() for tensor in tensors]
        writes = [tensor for tensors in call.writes.values() for tensor in tensors]
        flight = _Flight(event, exposed=not (event.where and in_techniques(event.where[0])))
        for tensors, written in ((reads, False), (writes, True), (results, True)):
            for tensor in filter(has_memory, tensors):
                extent = Extent.of(tensor)
                flight.extents.append(extent)
                insort(self._extents, (extent.start, next(self._numbers), extent, written, flight))
                self._longest = max(self._longest, extent.stop - extent.start)
        if flight.extents:
            watched = reads if event.op in _FILLED_BY_COPY else reads + writes
            flight.versions = [(weakref.ref(t), t._version) for t in watched if _counted(t)]
            self._open[event.n] = flight
            self.exposed += flight.exposed

    def approach(self, n: int) -> None:
        """Someone begins to wait for operation `n`."""
        if n in self._open and self._open[n].event.op in _FILLED_BY_COPY:
            self._open[n].landing = True

    def land(self, n: int) -> bool:
        """Operation `n` was waited for; tells if its memory was changed without being noticed."""
        flight = self._open.pop(n, None)
        if flight is None:
            return False
        self.exposed -= flight.exposed
        for extent in flight.extents:
            place = bisect_left(self._extents, (extent.start,))
            while self._extents[place][2] is not extent:
                place += 1
            del self._extents[place]
        if not self._open:
            self._longest = 0
        return not flight.told and any(
            (tensor := reference()) is not None and tensor._version != version
            for reference, version in flight.versions
        )

    def disturbed(
        self, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]
    ) -> Iterator[tuple[str, CommEvent]]:
        """(kind of trap, operation) for each one that reading and writing these would disturb.

        An operation is named once for each kind, however often it is disturbed.
        """
        for tensor in filter(has_memory, writes):
            for _, flight in self._met_by(tensor):
                yield from _tell("rewritten_in_flight", flight)
        for tensor in filter(has_memory, reads):
            for written, flight in self._met_by(tensor):
                if written:
                    yield from _tell("read_before_wait", flight)

    def _met_by(self, tensor: torch.Tensor) -> Iterator[tuple[bool, _Flight]]:
        start = tensor.data_ptr()
        first = bisect_left(self._extents, (start - self._longest,))
        last = bisect_left(self._extents, (start + reach(tensor),))
        for _, _, extent, written, flight in self._extents[first:last]:
            if extent.meets(tensor) and not flight.landing:
                yield written, flight


def _tell(kind: str, flight: _Flight) -> Iterator[tuple[str, CommEvent]]:
    # Whoever rewrites a buffer in place also reads it: one note says it.
    if kind not in flight.told and "rewritten_in_flight" not in flight.told:
        flight.told.add(kind)
        yield kind, flight.event


def _counted(tensor: torch.Tensor) -> bool:
    """Whether torch's count of writes is about this tensor alone: views of a storage share it."""
    if tensor.is_inference() or not has_memory(tensor):
        return False
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
