"""Buffers in flight: what a send still reads and a receive still fills, until someone waits."""

import itertools
import weakref
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from .calls import Call
from .events import CommEvent
from .frames import in_techniques
from .memory_overlap import ByteRange, has_memory, reach
from .threads import lock

# gloo fills the results of these from buffers of its own, which torch counts as writes too.
_FILLED_BY_COPY = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


@dataclass(slots=True)
class _InFlight:
    """An operation under way.

    keys: where its memory is in the table of all.
    versions: weak references to its tensors, with torch's count of writes to them so far.
    told: the kinds of warning already given about it.
    being_waited_for: a wait for it has begun, within which nobody writes but gloo itself.
    exposed: a line of the learner issued it, and not one of the course's techniques.
    """

    event: CommEvent
    keys: list[tuple[int, int]] = field(default_factory=list)
    versions: list[tuple[weakref.ref, int]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    being_waited_for: bool = False
    exposed: bool = True


class InFlightBuffers:
    """All operations that were issued and not yet waited for."""

    def __init__(self) -> None:
        self._open: dict[int, _InFlight] = {}
        # (start, number, part, whether it is written to, operation), sorted by address
        self._ranges: list[tuple[int, int, ByteRange, bool, _InFlight]] = []
        self._numbers = itertools.count()
        self._longest = 0  # bytes of any part so far
        self.exposed = 0  # how many of them the learner issued

    def __bool__(self) -> bool:
        return bool(self._open)

    def start(self, event: CommEvent, call: Call, results: Iterable[torch.Tensor] = ()) -> None:
        """`event` is under way; `results` are buffers that it made itself."""
        reads = [tensor for tensors in call.reads.values() for tensor in tensors]
        writes = [tensor for tensors in call.writes.values() for tensor in tensors]
        operation = _InFlight(event, exposed=not (event.where and in_techniques(event.where[0])))
        with lock:
            for tensors, written in ((reads, False), (writes, True), (results, True)):
                for tensor in filter(has_memory, tensors):
                    part = ByteRange.of(tensor)
                    key = (part.start, next(self._numbers))
                    operation.keys.append(key)
                    insort(self._ranges, (*key, part, written, operation))
                    self._longest = max(self._longest, part.stop - part.start)
            if operation.keys:
                watched = reads if event.op in _FILLED_BY_COPY else reads + writes
                operation.versions = [(weakref.ref(t), t._version) for t in watched if _counted(t)]
                self._open[event.n] = operation
                self.exposed += operation.exposed

    def begin_wait(self, n: int) -> None:
        """Someone begins to wait for operation `n`."""
        operation = self._open.get(n)
        if operation and operation.event.op in _FILLED_BY_COPY:
            operation.being_waited_for = True

    def finish(self, n: int) -> bool:
        """Operation `n` was waited for; tells if its memory was changed without being noticed."""
        with lock:
            operation = self._open.pop(n, None)
            if operation is None:
                return False
            self.exposed -= operation.exposed
            for key in operation.keys:
                del self._ranges[bisect_left(self._ranges, key)]
            if not self._open:
                self._longest = 0
        own_writes = _own_writes(operation.event)
        return not operation.told and any(
            (tensor := reference()) is not None and tensor._version > version + own_writes
            for reference, version in operation.versions
        )

    def disturbed(
        self, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]
    ) -> list[tuple[str, CommEvent]]:
        """(kind of warning, operation) for each one that reading and writing these would disturb.

        An operation is named once for each kind, however often it is disturbed.
        """
        with lock:
            found = [
                ("rewritten_in_flight", operation)
                for tensor in filter(has_memory, writes)
                for _, operation in self._met_by(tensor)
            ]
            found += [
                ("read_before_wait", operation)
                for tensor in filter(has_memory, reads)
                for written, operation in self._met_by(tensor)
                if written
            ]
            return [(kind, operation.event) for kind, operation in found if _new(kind, operation)]

    def _met_by(self, tensor: torch.Tensor) -> Iterator[tuple[bool, _InFlight]]:
        start = tensor.data_ptr()
        first = bisect_left(self._ranges, (start - self._longest,))
        last = bisect_left(self._ranges, (start + reach(tensor),))
        for _, _, part, written, operation in self._ranges[first:last]:
            if part.meets(tensor) and not operation.being_waited_for:
                yield written, operation


def _new(kind: str, operation: _InFlight) -> bool:
    # Whoever rewrites a buffer in place also reads it: one warning says it.
    if kind in operation.told or "rewritten_in_flight" in operation.told:
        return False
    operation.told.add(kind)
    return True


def _own_writes(event: CommEvent) -> int:
    """Writes of gloo's own that torch counts: dividing a sum where it lies, and the copies from the
    one buffer in which several tensors travel."""
    return (event.reduce_op == "avg") + (len(event.shapes) > 1)


def _counted(tensor: torch.Tensor) -> bool:
    """Whether torch's count of writes is about this tensor only: views of a storage share it."""
    if tensor.is_inference() or not has_memory(tensor):
        return False
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
