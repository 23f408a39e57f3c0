"""Different collectives on the ranks of a group: one calls something else, or nothing."""

from collections import defaultdict
from collections.abc import Iterable

from course_lib.observe import CommEvent, Divergence, RankWarning, Trace
from course_lib.observe.event_wording import location
from course_lib.observe.matching import GroupCalls
from course_lib.ranks.wording import call_text, describe, ordinal, plural, ranks_text
from course_lib.text import listed

from .cause import Cause

_REMEDIES = {
    "operation": "Every rank of a group must call the same collectives in the same order: look for "
    "an `if` on the rank around one of these lines.",
    "root": "Every rank must name the same root (src or dst), the ranks that receive too.",
    "reduction": "Every rank must ask for the same reduction.",
    "dtype": "Gloo compares bytes, not types: convert the tensors to one dtype first.",
    "size": "The tensors need the same shape on every rank. Print tensor.shape just before the "
    "call: the ranks may be at different calls, each in an order of its own, or the pieces of one "
    "call are unequal, as where the world size does not divide a size.",
}


def compare_collectives(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Cause]:
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


def passed_unequal(groups: Iterable[GroupCalls]) -> list[RankWarning]:
    """A warning for each group whose ranks called collectives that differ, and got through."""
    found = []
    for group in groups:
        fault = group.divergence
        if fault and fault.what != "missing" and all(e.done for e in fault.calls.values()):
            lines = listed(sorted({location(event.where) for event in fault.calls.values()}))
            told = _mismatch(fault)
            message = (
                f"{told.why.removesuffix('.')}, in {lines}. Gloo lets this pass without an error. "
                f"{told.remedy.removesuffix('.')}"
            )
            first = min(fault.calls)
            where = fault.calls[first].where
            found.append(RankWarning(first, "mismatched_collective", message, where))
    return found


def _mismatch(fault: Divergence) -> Cause:
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, event in fault.calls.items():
        reduction = f" ({event.reduce_op})" if fault.what == "reduction" else ""
        alike[call_text(event) + reduction].append(rank)
    calls = "; ".join(f"{ranks_text(ranks)} called {call}" for call, ranks in alike.items())
    why = (
        f"the {ordinal(fault.index + 1)} collective does not have the same {fault.what} "
        f"everywhere: {calls}."
    )
    return Cause(why, _REMEDIES[fault.what], mismatch=True)


def _missing(
    event: CommEvent,
    waiting: list[int],
    absent: list[int],
    states: dict[int, str],
    blocked: dict[int, CommEvent],
) -> Cause:
    elsewhere: dict[str, list[int]] = defaultdict(list)
    for rank in absent:
        doing = f"waits {describe(blocked[rank])}" if rank in blocked else states[rank]
        elsewhere[doing].append(rank)
    missing = [f"{ranks_text(ranks)} {plural(doing, ranks)}" for doing, ranks in elsewhere.items()]
    why = (
        f"{ranks_text(waiting)} {plural('waits', waiting)} in {event.op} for all ranks of the "
        f"group, but {listed(missing)}."
    )
    if all(states[rank] == "is still running" for rank in absent):
        remedy = f"Find out why {ranks_text(absent)} {plural('does', absent)} not get there."
    else:
        remedy = f"Every rank of the group has to call {event.op}, even when it has nothing to add."
    return Cause(why, remedy)
