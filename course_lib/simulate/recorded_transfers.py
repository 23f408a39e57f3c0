"""What moves between ranks, once: a message with its send and receive, a collective of its members.

A trace knows which of its events belong together (`observe.Trace.match`); here they become jobs for
links, and a trace in which some belong to nothing is refused.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

SHARDED = ("all_gather", "gather", "scatter", "reduce_scatter")  # recorded with one rank's share


class Event(Protocol):
    """What is read of a recorded communication (`observe.CommEvent` has it)."""

    rank: int
    n: int
    op: str
    ranks: tuple[int, ...]
    peer: int | None
    tag: int
    nbytes: int
    splits: tuple[int, ...] | None
    issued: float
    waited: float | None
    done: float | None


class Recording(Protocol):
    """What is read of a trace (`observe.Trace` has it)."""

    @property
    def world_size(self) -> int: ...

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def compute(self) -> Sequence[Any]:
        """Of `programs.Computed`."""

    def match(self) -> Any:
        """An `observe.Matching`: pairs and groups of events, and those left over."""


class Transfer(NamedTuple):
    """Bytes that move once."""

    op: str  # "send" for a message
    events: tuple[Event, ...]  # a message's send and receive; all members of a collective
    ranks: tuple[int, ...]
    nbytes: int  # the whole tensor of a collective
    ready: float  # when, in the recording, it could begin
    buffered: bool = False  # the send returned before there was a receive
    group: str | None = None  # the name of a collective's process group


def transfers_of(trace: Recording) -> list[Transfer]:
    """All transfers, in the order in which they could begin.

    Raises a ValueError that names the rank where a send has no receive, a receive no send, or the
    members of a group did not call the same collectives.
    """
    for event in trace.events:
        if not 0 <= event.rank < trace.world_size:
            raise ValueError(f"{describe(event)} in a world of {trace.world_size} ranks")
    matching = trace.match()
    for event in matching.unmatched_recvs:
        raise ValueError(f"{describe(event)} has no send")
    for event in matching.unmatched_sends:
        raise ValueError(f"{describe(event)} has no receive")
    transfers = [_message(send, receive) for send, receive in matching.pairs]
    for group in matching.groups:
        if group.divergence is not None:
            raise ValueError(_disagreement(group.ranks, group.divergence))
        calls = zip(*(group.calls[rank] for rank in group.ranks), strict=True)
        transfers += [_collective(members, group.ranks, group.group) for members in calls]
    return sorted(transfers, key=lambda transfer: transfer.ready)


def describe(event: Event) -> str:
    """`rank 1, event 3: recv of 400 bytes from rank 0 (tag 0)`."""
    text = f"rank {event.rank}, event {event.n}: {event.op} of {event.nbytes} bytes"
    if event.op == "send":
        return f"{text} to rank {event.peer} (tag {event.tag})"
    if event.op == "recv":
        peer = "any rank" if event.peer is None else f"rank {event.peer}"
        return f"{text} from {peer} (tag {event.tag})"
    return text


def _message(send: Event, receive: Event) -> Transfer:
    buffered = send.done is not None and send.done < receive.issued
    ready = send.issued if buffered else max(send.issued, receive.issued)
    ranks = (send.rank, receive.rank)
    return Transfer("send", (send, receive), ranks, send.nbytes, ready, buffered)


def _collective(members: tuple[Event, ...], ranks: tuple[int, ...], group: str) -> Transfer:
    first = members[0]
    nbytes = first.nbytes
    if first.op in SHARDED:
        nbytes = sum(first.splits) if first.splits else nbytes * len(ranks)
    ready = max(event.issued for event in members)
    return Transfer(first.op, members, ranks, nbytes, ready, group=group)


def _disagreement(ranks: tuple[int, ...], divergence: Any) -> str:
    """One line for an `observe.Divergence`."""
    calls = "; ".join(describe(event) for _, event in sorted(divergence.calls.items()))
    where = f"collective {divergence.index} of the group of ranks {ranks}"
    if divergence.what == "missing":
        missing = ", ".join(str(rank) for rank in ranks if rank not in divergence.calls)
        return f"{where} is missing on rank {missing}: {calls}"
    return f"{where} differs in its {divergence.what}: {calls}"
