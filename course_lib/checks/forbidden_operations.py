"""Operations that an answer may not use: built-ins that it has to do without, the course's own."""

from collections.abc import Collection

from course_lib.observe import Frame, Trace
from course_lib.ranks.source_location import location_of, text_of
from course_lib.text import listed

from .exercise import Finding
from .sandbox.names import technique_file

_MOVES_NOTHING = frozenset({"barrier"})


def forbidden(allowed: Collection[str] | None, trace: Trace) -> Finding | None:
    """An operation that the exercise does not allow, by whichever way it was called.

    The operations are those that ran, so a method of the group, a functional collective or
    `torch.distributed.nn` is seen like the plain call.
    """
    if allowed is None:
        return None
    for event in trace.events:
        if event.op not in allowed and event.op not in _MOVES_NOTHING:
            use = (
                f"use {listed(sorted(allowed, reverse=True))}"
                if allowed
                else "needs no communication"
            )
            return Finding(
                f"your ranks ran {event.op}{_at(event.where)}, and this exercise is about doing "
                f"without it: {use}",
                rank=event.rank,
            )
    return None


def course_answer(trace: Trace) -> Finding | None:
    """The library's own technique instead of the learner's."""
    for event in trace.events:
        if any(technique_file(frame.file) for frame in event.where):
            return Finding(
                "your function calls course_lib.techniques, where the course keeps its own "
                "answer: write it yourself here, import theirs afterwards",
                rank=event.rank,
            )
    return None


def _at(where: tuple[Frame, ...]) -> str:
    if not where:
        return ""
    text = text_of(where[0])
    return f" ({location_of(where[0])}{': ' + text if text else ''})"
