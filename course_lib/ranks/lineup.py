"""Collectives that do not line up: at some place one rank calls something else, or nothing."""

from collections import defaultdict

from course_lib.observe import CommEvent, Divergence, Trace
from course_lib.ranks.diagnosis import Diagnosis
from course_lib.ranks.wording import and_list, call_text, describe, ordinal, ranks_text

_REMEDIES = {
    "operation": "Every rank of a group must call the same collectives in the same order: look for "
    "an `if` on the rank around one of these lines.",
    "root": "Every rank must name the same root (src or dst), also the ranks that receive.",
    "reduction": "Every rank must ask for the same reduction.",
    "dtype": "Gloo compares bytes, not types: convert the tensors to one dtype first.",
    "size": "The tensors need the same shape on every rank. Print tensor.shape just before the "
    "call; unequal pieces come from sizes that the world size does not divide.",
}


def compare_collectives(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Diagnosis]:
    """One diagnosis for each group whose ranks are out of step with each other."""
    found = []
    for group in trace.match().groups:
        fault = group.divergence
        if fault and fault.what != "missing":
            found.append(_mismatch(fault))
        elif fault:
            waiting = [r for r, event in fault.calls.items() if blocked.get(r) is event]
            absent = [rank for rank in group.ranks if rank not in fault.calls]
            if waiting:
                event = fault.calls[waiting[0]]
                found.append(_missing(event, waiting, absent, states, blocked))
    return found


def _mismatch(fault: Divergence) -> Diagnosis:
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, event in fault.calls.items():
        reduction = f" ({event.reduce_op})" if fault.what == "reduction" else ""
        alike[call_text(event) + reduction].append(rank)
    calls = "; ".join(f"{ranks_text(ranks)} called {call}" for call, ranks in alike.items())
    why = (
        f"the {ordinal(fault.index + 1)} collective does not have the same {fault.what} "
        f"everywhere: {calls}."
    )
    return Diagnosis(why, _REMEDIES[fault.what], mismatch=True)


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
