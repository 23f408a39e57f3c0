"""What a learner calls an operation, and a line of theirs."""

from .events import CommEvent, Frame


def name(event: CommEvent) -> str:
    """ "isend to rank 1"."""
    if event.op == "send":
        return f"isend to rank {event.peer}"
    if event.op == "recv":
        return f"irecv from {'any rank' if event.peer is None else f'rank {event.peer}'}"
    return event.op


def location(where: tuple[Frame, ...]) -> str:
    """ "line 3 of feed", the innermost of the learner's lines."""
    if not where:
        return "a line out of sight"
    inside = "" if where[0].function.startswith("<") else f" of {where[0].function}"
    return f"line {where[0].line}{inside}"
