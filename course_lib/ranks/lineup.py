"""Collectives that do not line up: at some place one rank calls something else, or nothing."""

from collections import defaultdict

from course_lib.observe import CommEvent, Trace
from course_lib.ranks.diagnosis import Diagnosis
from course_lib.ranks.wording import and_list, call_text, describe, ordinal, ranks_text

POINT_TO_POINT = ("send", "recv")


def compare_collectives(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Diagnosis]:
    sequences: dict[tuple[int, ...], dict[int, list[CommEvent]]] = defaultdict(dict)
    for rank in states:
        for event in trace.of(rank):
            if event.op not in POINT_TO_POINT:
                sequences[event.ranks].setdefault(rank, []).append(event)
    found = []
    for group, by_rank in sequences.items():
        found += _out_of_step(group, by_rank, states, blocked)
    return found


def _out_of_step(
    group: tuple[int, ...],
    by_rank: dict[int, list[CommEvent]],
    states: dict[int, str],
    blocked: dict[int, CommEvent],
) -> list[Diagnosis]:
    longest = max(map(len, by_rank.values()))
    for index in range(longest):
        here = {r: events[index] for r, events in by_rank.items() if index < len(events)}
        if difference := _difference(here):
            return [_mismatch(index, here, *difference)]
        absent = [rank for rank in group if rank not in here]
        waiting = [rank for rank, event in here.items() if blocked.get(rank) is event]
        if absent and waiting:
            return [_missing(here[waiting[0]], waiting, absent, states, blocked)]
    return []


def _difference(here: dict[int, CommEvent]) -> tuple[str, str] | None:
    """In what the calls at one place differ, and what to do about it; None if they agree."""
    events = list(here.values())
    operations = {event.op for event in events}
    if len(operations) > 1:
        return "operation", (
            "Every rank of a group must call the same collectives in the same order: look for an "
            "`if` on the rank around one of these lines."
        )
    if len({event.peer for event in events}) > 1:
        return (
            "root",
            "Every rank must name the same root (src or dst), also the ranks that receive.",
        )
    if len({event.reduce_op for event in events}) > 1:
        return "reduction", "Every rank must ask for the same reduction."
    if len({event.dtype for event in events}) > 1:
        return "dtype", "Gloo compares bytes, not types: convert the tensors to one dtype first."
    if operations != {"all_to_all"} and len({event.nbytes for event in events}) > 1:
        return "size", (
            "The tensors need the same shape on every rank. Print tensor.shape just before the "
            "call; unequal pieces come from sizes that the world size does not divide."
        )
    return None


def _mismatch(index: int, here: dict[int, CommEvent], what: str, remedy: str) -> Diagnosis:
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, event in here.items():
        reduction = f" ({event.reduce_op})" if what == "reduction" else ""
        alike[call_text(event) + reduction].append(rank)
    calls = "; ".join(f"{ranks_text(ranks)} called {call}" for call, ranks in alike.items())
    why = f"the {ordinal(index + 1)} collective does not have the same {what} everywhere: {calls}."
    return Diagnosis(why, remedy, mismatch=True)


def _missing(
    event: CommEvent,
    waiting: list[int],
    absent: list[int],
    states: dict[int, str],
    blocked: dict[int, CommEvent],
) -> Diagnosis:
    wait = "waits" if len(waiting) == 1 else "wait"
    missing = []
    for rank in absent:
        if rank in blocked:
            missing.append(f"rank {rank} waits {describe(blocked[rank])}")
        else:
            missing.append(f"rank {rank} {states[rank]}")
    why = (
        f"{ranks_text(waiting)} {wait} in {event.op} for all ranks of the group, "
        f"but {and_list(missing)}."
    )
    return Diagnosis(
        why, f"Every rank of the group has to call {event.op}, also when it has nothing to add."
    )
