"""Buffers in flight: what a send still reads and a receive still fills, until someone waits."""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from course_lib.observe.calls import Call
from course_lib.observe.events import CommEvent
from course_lib.observe.memory import Extent, has_memory


@dataclass(slots=True)
class Flight:
    """An operation under way and its memory.

    versions: weak references to tensors, with the count of writes to them so far.
    told: the kinds of trap already noted about it.
    """

    event: CommEvent
    reads: list[Extent]
    writes: list[Extent]
    versions: list[tuple[weakref.ref, int]]
    told: set[str] = field(default_factory=set)


class Flights:
    """All operations that were issued and not yet waited for."""

    def __init__(self) -> None:
        self._open: dict[int, Flight] = {}
        self._low = self._high = 0  # all their memory lies in between

    def __bool__(self) -> bool:
        return bool(self._open)

    def start(self, event: CommEvent, call: Call, results: Iterable[torch.Tensor] = ()) -> None:
        """`event` is under way; `results` are buffers that it made itself."""
        sources = [t for tensors in call.reads.values() for t in tensors]
        targets = [t for tensors in call.writes.values() for t in tensors]
        reads, writes = _extents(sources), _extents(targets) + _extents(results)
        if extents := reads + writes:
            low, high = min(e.start for e in extents), max(e.stop for e in extents)
            if self._open:
                low, high = min(low, self._low), max(high, self._high)
            self._low, self._high = low, high
            versions = [(weakref.ref(t), t._version) for t in sources + targets if _counted(t)]
            self._open[event.n] = Flight(event, reads, writes, versions)

    def land(self, n: int) -> bool:
        """Operation `n` was waited for; tells if its memory was changed without being noticed."""
        flight = self._open.pop(n, None)
        if flight is None or flight.told:
            return False
        return any(
            (tensor := reference()) is not None and tensor._version != version
            for reference, version in flight.versions
        )

    def disturbed(
        self, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]
    ) -> Iterator[tuple[str, CommEvent]]:
        """(kind of trap, operation) for each flight that reading and writing these would disturb.

        A flight is named once for each kind, however often it is disturbed.
        """
        for tensor in filter(self._near, writes):
            for flight in self._open.values():
                if any(e.meets(tensor) for e in flight.reads + flight.writes):
                    yield from self._tell("rewritten_in_flight", flight)
        for tensor in filter(self._near, reads):
            for flight in self._open.values():
                if any(e.meets(tensor) for e in flight.writes):
                    yield from self._tell("read_before_wait", flight)

    def _near(self, tensor: torch.Tensor) -> bool:
        # A quick look first: most tensors are far from all flights.
        if not has_memory(tensor):
            return False
        start = tensor.data_ptr()
        return start < self._high and start + tensor.untyped_storage().nbytes() > self._low

    @staticmethod
    def _tell(kind: str, flight: Flight) -> Iterator[tuple[str, CommEvent]]:
        # Whoever rewrites a buffer in place also reads it: one note says it.
        if not flight.told or (
            kind not in flight.told and "rewritten_in_flight" not in flight.told
        ):
            flight.told.add(kind)
            yield kind, flight.event


def _extents(tensors: Iterable[torch.Tensor]) -> list[Extent]:
    return [Extent.of(tensor) for tensor in tensors if has_memory(tensor)]


def _counted(tensor: torch.Tensor) -> bool:
    """Whether torch's count of writes is about this tensor alone: views of a storage share it."""
    if tensor.is_inference() or not has_memory(tensor):
        return False
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
