"""The words in which reports speak of ranks and calls."""

from collections.abc import Sized

from course_lib.observe import CommEvent
from course_lib.text import counted, listed

_MOST_LISTED = 8  # ranks that are named one by one
_PLURALS = {
    "does": "do",
    "has": "have",
    "is": "are",
    "sends": "send",
    "waits": "wait",
    "was": "were",
}


def describe(event: CommEvent) -> str:
    """What a rank is doing, as the rest of "rank 0 waits ..."."""
    if event.op == "send":
        return f"to send {size_text(event)} to rank {event.peer}"
    if event.op == "recv":
        source = "any rank" if event.peer is None else f"rank {event.peer}"
        return f"to receive {size_text(event)} from {source}"
    return f"in {call_text(event)}"


def ranks_text(ranks: list[int]) -> str:
    """rank 1; ranks 0, 2 and 3; ranks 0 to 63"""
    ranks = sorted(ranks)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _MOST_LISTED and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {listed(ranks)}"


def plural(doing: str, ranks: Sized) -> str:
    """ "has returned" of one rank is "have returned" of two."""
    verb, _, rest = doing.partition(" ")
    return doing if len(ranks) == 1 else f"{_PLURALS.get(verb, verb)} {rest}".rstrip()


def size_text(event: CommEvent) -> str:
    shape = "x".join(map(str, event.shapes[0])) if event.shapes and event.shapes[0] else "1"
    return f"{shape} {event.dtype}"


def bytes_text(event: CommEvent) -> str:
    """5 float32 (20 bytes)"""
    return f"{size_text(event)} ({counted(event.nbytes, 'byte')})"


def call_text(event: CommEvent) -> str:
    if event.op == "barrier":
        return "barrier"
    root = "" if event.peer is None else f", root {event.peer}"
    return f"{event.op} of {size_text(event)}{root}"


def ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def times(count: int) -> str:
    return {0: "nothing", 1: "one message"}.get(count, f"{count} messages")
