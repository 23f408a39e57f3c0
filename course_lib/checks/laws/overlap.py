"""Messages leave as soon as they can, and nobody waits for them while there is something to do.

What is waited for at once hides behind nothing, and gives the same numbers. Told by the order in
which a rank issued, waited and ran things, and never by how long anything took.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.profiler_labels import NEVER, READY, WHILE, label_of, message
from course_lib.observe import CommEvent, Label, Trace
from course_lib.text import counted

from ._law import Law

_AT_ONCE = {
    "send": "begin sends with dist.isend, keep handle and tensor, and wait for them at the end. "
    "Two ranks that send to each other would wait for ever",
}
_ASYNC = "pass async_op=True, keep the handle, and wait when nothing is left to do"
_WHILE = re.compile(re.escape(WHILE).replace(r"\{message\}", "(.*)").replace(r"\{runs\}", "(.*)"))


def judge(contract: Contract, case: Case, observation: Observation) -> Finding | None:
    if case.world_size == 1:
        return None
    for rank, waits in itertools.product(range(case.world_size), contract.waits):
        look = _Look(waits, observation.trace, rank)
        for finding in (look.promptly, look.begins, look.outlasts, look.reaches, look.during):
            if found := finding():
                return replace(found, rank=rank, promise=True)
    return None


@dataclass
class _Piece:
    """Something in the line of what is to leave; when it was ready, if it ever was."""

    place: int
    nbytes: int
    moment: float | None


@dataclass
class _Look:
    """One rank, and its messages of one kind."""

    waits: Waits
    trace: Trace
    rank: int

    @cached_property
    def _events(self) -> list[CommEvent]:
        return [event for event in self.trace.of(self.rank) if event.op == self.waits.op]

    @cached_property
    def _labels(self) -> list[Label]:
        own = (label for label in self.trace.labels if label.rank == self.rank)
        return sorted(own, key=lambda label: label.start)

    def _named(self, what: str) -> list[Label]:
        return [label for label in self._labels if label.name == label_of(what)]

    # -----------------------------------------------------------------------------------------

    def begins(self) -> Finding | None:
        if not self.waits.begins or self.waits.promptly:
            return None
        return self._outside(self._events)

    def _outside(self, events: list[CommEvent]) -> Finding | None:
        """Of these, whether all were issued where they should be."""
        op, inside = self.waits.op, self.waits.begins
        late = [event for event in events if label_of(inside) not in event.spans]
        if not late:
            return None
        return Finding(
            f"the result is right, but {counted(len(late), op)} began after {inside} had ended, "
            "when nothing is left to hide behind and all had to be kept until then: start each in "
            "the hook that completes it",
            expected=f"every {op} issued inside {inside}",
            got=f"{len(late)} of {len(events)} issued after it",
        )

    def promptly(self) -> Finding | None:
        """What has all its pieces, and those before it gone, leaves before the next is ready."""
        if not self.waits.promptly:
            return None
        for events, pieces in self._rounds():
            due = [(event, done) for event, done in _due(events, pieces) if done is not None]
            if found := self._outside([event for event, _ in due]):
                return found
            moments = sorted(p.moment for p in pieces if p.moment is not None)
            for event, done in due:
                following = next((moment for moment in moments if moment > done), None)
                if following is not None and event.issued > following:
                    op = self.waits.op
                    return Finding(
                        f"the result is right, but one {op} was complete, with all before it gone, "
                        "and waited for gradients of others: let each hook send what is complete",
                        expected=f"each {op} issued before the next gradient is ready",
                        got="one that was issued after it",
                    )
        return None

    def _rounds(self) -> Iterator[tuple[list[CommEvent], list[_Piece]]]:
        """For each time that it ran: the messages from then on, and the line of pieces."""
        begun = [label.start for label in self._named(self.waits.begins)]
        for start, end in itertools.pairwise([*begun, float("inf")]):
            pieces = [
                _Piece(int(place), int(nbytes), label.start if known == READY else None)
                for label in self._labels
                if start <= label.start < end
                for known in (READY, NEVER)
                if label.name.startswith(f"{known} ")
                for place, nbytes in [label.name.removeprefix(f"{known} ").split()]
            ]
            events = [event for event in self._events if start <= event.issued < end]
            yield events, sorted(pieces, key=lambda piece: piece.place)

    def outlasts(self) -> Finding | None:
        for event in self._events if self.waits.outlasts else ():
            around = [
                label
                for label in self._named(self.waits.outlasts)
                if label.start <= event.issued <= label.end
            ]
            if around and _waited_before(event, around[-1].end):
                where = self.waits.outlasts
                return Finding(
                    f"the result is right, but there is a wait for the {self.waits.op} inside "
                    f"{where}, so nothing goes on meanwhile: {self._remedy()}",
                    expected=f"no wait before {where} has ended",
                    got=f"a wait inside {where}",
                )
        return None

    def reaches(self) -> Finding | None:
        following = self._named(self.waits.reaches) if self.waits.reaches else []
        for event in self._events:
            next_one = next((label for label in following if label.start >= event.issued), None)
            # What a thread of its own waits for keeps nobody else.
            if next_one and not event.thread and _waited_before(event, next_one.start):
                what, op = self.waits.reaches, self.waits.op
                return Finding(
                    f"the result is right, but the rank waits for its {op} before its next {what}: "
                    f"{self._remedy()}",
                    expected=f"the next {what} begins while a {op} is under way",
                    got=f"a wait for the {op} before it",
                )
        return None

    def during(self) -> Finding | None:
        if not self.waits.during:
            return None
        told = ((label, _WHILE.fullmatch(label.name)) for label in self._labels)
        found = (self._under_way(label, *match.groups()) for label, match in told if match)
        return next(filter(None, found), None)

    def _under_way(self, label: Label, name: str, runs: str) -> Finding | None:
        events = [event for event in self._events if message(name) in event.spans]
        op, _, number = name.rpartition(" ")
        if op == self.waits.op:
            events = self._events[int(number) - 1 : int(number)]
        begun = [event for event in events if event.issued <= label.start]
        if any(not _waited_before(event, label.end) for event in begun):
            return None
        if not begun:
            likely, got = f"{name} had not begun, and hides behind nothing", "it begins later"
            remedy = "start it before"
        elif begun[-1].blocking:
            likely, got = f"the call for {name} itself had waited", "a call that waits"
            remedy = "async_op=True returns a handle, whose wait() comes after"
        else:
            likely, got = f"{name} had been waited for, so nothing overlaps", "a wait before"
            remedy = "start it, go on, and wait just before its use"
        return Finding(
            f"the result is right, but when {runs}, {likely}: {remedy}",
            expected=f"{name} is under way when {runs}",
            got=got,
        )

    def _remedy(self) -> str:
        return _AT_ONCE.get(self.waits.op, _ASYNC)


def _waited_before(event: CommEvent, moment: float) -> bool:
    return event.blocking or (event.waited is not None and event.waited < moment)


def _due(events: list[CommEvent], pieces: list[_Piece]) -> Iterator[tuple[CommEvent, float | None]]:
    """When each had all that it and those before it carry; None if that never came."""
    sent = 0
    for event in events:
        sent += event.nbytes
        ends = itertools.accumulate(piece.nbytes for piece in pieces)
        moments = [p.moment for p, end in zip(pieces, ends, strict=True) if end <= sent]
        known = [moment for moment in moments if moment is not None]
        yield event, max(known, default=0.0) if len(known) == len(moments) else None


LAW = Law(judge=judge, applies=lambda contract: bool(contract.waits))
