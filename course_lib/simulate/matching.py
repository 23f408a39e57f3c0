"""Which recorded events belong together: a send and its receive, the members of a collective."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

SHARDED = ("all_gather", "gather", "scatter", "reduce_scatter")  # recorded with one rank's shard


class Event(Protocol):
    """What is read of a recorded communication event (`observe.CommEvent` has it)."""

    rank: int
    n: int
    op: str
    group: str
    ranks: tuple[int, ...]
    peer: int | None
    tag: int
    nbytes: int
    issued: float
    waited: float | None
    done: float | None


class Transfer(NamedTuple):
    """Bytes that move once: a message (its send first), or a collective of all its members."""

    op: str
    events: tuple[Event, ...]
    ranks: tuple[int, ...]
    nbytes: int  # the whole tensor of a collective
    ready: float  # when, in the recording, it could begin
    buffered: bool = False  # the send returned before there was a receive
    group: str | None = None  # of a collective


def match(events: Iterable[Event], world_size: int) -> list[Transfer]:
    """All transfers, in the order in which they could begin.

    Raises a ValueError that names the rank where a send has no receive, a receive no send, or a
    collective not all its members.
    """
    messages: list[Event] = []
    collectives: list[Event] = []
    for event in sorted(events, key=lambda event: (event.rank, event.n)):
        if not 0 <= event.rank < world_size:
            raise ValueError(f"{describe(event)} in a world of {world_size} ranks")
        (messages if event.op in ("send", "recv") else collectives).append(event)
    transfers = _match_messages(messages) + _match_collectives(collectives)
    return sorted(transfers, key=lambda transfer: transfer.ready)


def _match_messages(events: Sequence[Event]) -> list[Transfer]:
    """First in, first out for each (sender, receiver, tag); any sender where none is named."""
    posted: dict[tuple[int, int, int], deque[Event]] = defaultdict(deque)
    for event in events:
        if event.op == "send":
            posted[event.rank, event.peer, event.tag].append(event)
    everyone = sorted({sender for sender, _, _ in posted})
    transfers = []
    for receive in events:
        if receive.op != "recv":
            continue
        senders = everyone if receive.peer is None else [receive.peer]
        keys = [(sender, receive.rank, receive.tag) for sender in senders]
        waiting = [posted[key] for key in keys if posted.get(key)]
        if not waiting:
            raise ValueError(f"{describe(receive)} has no send")
        send = min(waiting, key=lambda queue: queue[0].issued).popleft()
        buffered = send.done is not None and send.done < receive.issued
        ready = send.issued if buffered else max(send.issued, receive.issued)
        pair = (send.rank, receive.rank)
        transfers.append(Transfer("send", (send, receive), pair, send.nbytes, ready, buffered))
    for queue in posted.values():
        if queue:
            raise ValueError(f"{describe(queue[0])} has no receive")
    return transfers


def _match_collectives(events: Sequence[Event]) -> list[Transfer]:
    """The k-th collective of a group on each of its ranks is the same one."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[Event]]] = {}
    for event in events:
        members = groups.setdefault((event.group, event.ranks), {rank: [] for rank in event.ranks})
        if event.rank not in members:
            raise ValueError(f"{describe(event)} is not in its own group of ranks {event.ranks}")
        members[event.rank].append(event)
    transfers = []
    for (group, ranks), members in groups.items():
        longest = max(members, key=lambda rank: len(members[rank]))
        for k, first in enumerate(members[longest]):
            for rank in ranks:
                if k >= len(members[rank]):
                    raise ValueError(f"{describe(first)} of ranks {ranks}: rank {rank} is missing")
                if members[rank][k].op != first.op:
                    raise ValueError(f"{describe(first)} meets {describe(members[rank][k])}")
            taking_part = tuple(members[rank][k] for rank in ranks)
            nbytes = max(event.nbytes for event in taking_part)
            nbytes *= len(ranks) if first.op in SHARDED else 1
            ready = max(event.issued for event in taking_part)
            transfers.append(Transfer(first.op, taking_part, ranks, nbytes, ready, group=group))
    return transfers


def describe(event: Event) -> str:
    """`rank 1, event 3: recv of 400 bytes from rank 0 (tag 0)`."""
    text = f"rank {event.rank}, event {event.n}: {event.op} of {event.nbytes} bytes"
    if event.op == "send":
        return f"{text} to rank {event.peer} (tag {event.tag})"
    if event.op == "recv":
        peer = "any rank" if event.peer is None else f"rank {event.peer}"
        return f"{text} from {peer} (tag {event.tag})"
    return text
