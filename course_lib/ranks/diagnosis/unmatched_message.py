"""Messages with one end: somebody waits, and the other side does not come to it."""

from dataclasses import dataclass

from course_lib.observe import CommEvent, Trace
from course_lib.ranks.wording import describe, ordinal, plural, ranks_text, times
from course_lib.text import listed

from .cause import Cause


@dataclass(frozen=True)
class UnmatchedMessage:
    """What a rank sees that waits for a message with one end; ranks that see the same share it.

    doing: what the peer does instead. count: messages that the peer did issue for this rank.
    nth: how many of the rank's own calls this is. tags: those of the peer's calls, none of which
        is that of the rank.
    """

    op: str
    peer: int
    doing: str
    count: int
    nth: int
    tag: int
    tags: tuple[int, ...]


def look_across(
    rank: int,
    event: CommEvent,
    states: dict[int, str],
    blocked: dict[int, CommEvent],
    trace: Trace,
) -> UnmatchedMessage:
    """What stands at the other end of the `event` in which `rank` waits."""
    assert event.peer is not None  # a receive from any rank waits for nobody in particular
    peer, other = event.peer, "recv" if event.op == "send" else "send"
    mine = [e for e in trace.of(rank) if (e.op, e.peer, e.tag) == (event.op, peer, event.tag)]
    theirs = [e for e in trace.of(peer) if e.op == other and e.peer in (rank, None)]
    before = next(i for i, e in enumerate(mine) if e is event)
    doing = f"waits {describe(blocked[peer])}" if peer in blocked else states[peer]
    tags = {e.tag for e in theirs}
    differ = () if event.tag in tags else tuple(sorted(tags))
    return UnmatchedMessage(event.op, peer, doing, len(theirs), before + 1, event.tag, differ)


def explain(message: UnmatchedMessage, ranks: list[int]) -> Cause:
    """A sentence for all `ranks` that wait in vain for the same."""
    who, one = ranks_text(ranks), len(ranks) == 1
    them, its = ("it", "its") if one else ("each of them", "their")
    if message.op == "recv":
        why = f"{who} {plural('waits', ranks)} for a message from rank {message.peer}"
        count = f"has sent {them} {times(message.count)}"
        call, ends = "receive", ("recv", "send")
    else:
        why = f"{who} {plural('sends', ranks)} to rank {message.peer}"
        count = f"has received from {them} {times(message.count)}"
        call, ends = "send", ("send", "recv")
    why += f", but rank {message.peer} {message.doing}"
    if message.tags:
        return Cause(
            f"{why}. The tags differ: {message.tag} here, {listed(list(message.tags))} there.",
            "Use the same tag in both calls.",
        )
    if message.count:
        why += f"; rank {message.peer} {count}, and this is {its} {ordinal(message.nth)} {call}"
    else:
        why += f", and {count}"
    return Cause(
        f"{why}.",
        f"Every {ends[0]} needs a {ends[1]} on the other side: the same pair of ranks, as many "
        "times.",
    )
