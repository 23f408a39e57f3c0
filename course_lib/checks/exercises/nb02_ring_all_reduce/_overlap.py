"""Whether gradients were on their way while backward still ran: by order of issue, not by time."""

from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.observe import CommEvent

from ._big_batch import (
    BACKWARD,
    STEPS,
    big_batch_gradients,
)


def overlap(case: Case, observation: Observation) -> Finding | None:
    """Each gradient went out once, inside backward, and backward did not wait for it."""
    if case.world_size == 1:
        return None
    expected = [want for want in big_batch_gradients(case)[0].values() if want is not None]
    once = STEPS * sum(want.value.numel() * want.dtype.itemsize for want in expected)
    for rank in range(case.world_size):
        reduced = [event for event in observation.trace.of(rank) if event.op == "all_reduce"]
        inside = [event for event in reduced if BACKWARD in event.spans]
        if late := len(reduced) - len(inside):
            return Finding(
                "the gradients are right, but all-reduces began after backward had ended, when "
                "nothing is left to hide them behind: start each one in its parameter's hook",
                rank,
                expected="every all-reduce issued inside backward",
                got=f"{late} of {len(reduced)} issued after it",
            )
        nbytes = sum(event.nbytes for event in inside)
        if nbytes != once:
            return Finding(
                "the gradients are right, but not every gradient was reduced exactly once",
                rank,
                expected=f"{once} bytes all-reduced in {STEPS} steps",
                got=f"{nbytes} bytes",
            )
        seen = observation.values[rank]
        finding = _bunched(inside, len(expected), rank)
        each = len(inside) // STEPS
        for step in range(STEPS):
            events = inside[step * each : (step + 1) * each]
            ready = seen["ready"][step * each : (step + 1) * each]
            finding = (
                finding
                or _late(events, seen["half_way"][step], rank)
                or _waits(events, seen["ends"][step], rank)
                or _held_back(events, ready, rank)
            )
        if finding:
            return finding
    return None


def _bunched(inside: list[CommEvent], gradients: int, rank: int) -> Finding | None:
    if len(inside) >= STEPS * gradients:
        return None
    return Finding(
        "the gradients are right, but several went out together, so the first of them waited for "
        "the last: here every gradient starts as soon as it is ready (fusing comes next)",
        rank,
        expected=f"{STEPS * gradients} all-reduces in {STEPS} steps",
        got=f"{len(inside)}",
    )


def _late(events: list[CommEvent], half_way: float, rank: int) -> Finding | None:
    """`half_way` is when backward came to the first layer: the last layer's gradients are ready."""
    if any(event.issued < half_way for event in events):
        return None
    return Finding(
        "the gradients are right, but all of them went out when backward was at its end: the last "
        "layer's were ready long before",
        rank,
        expected="all-reduces issued before backward comes to the first layer",
        got="none",
    )


def _waits(events: list[CommEvent], end: float, rank: int) -> Finding | None:
    for event in events:
        if event.blocking or (event.waited is not None and event.waited < end):
            return Finding(
                "the gradients are right, but the hook waits for an all-reduce, and backward with "
                "it: pass async_op=True, keep the handle, and wait in synchronize",
                rank,
                expected="no wait before backward has ended",
                got="a wait inside backward",
            )
    return None


def _held_back(events: list[CommEvent], ready: list[float], rank: int) -> Finding | None:
    """Each leaves before the next is ready; `ready` are the times, in the same order."""
    late = sum(
        event.issued > following for event, following in zip(events, ready[1:], strict=False)
    )
    if not late:
        return None
    return Finding(
        "the gradients are right, but some wait for others before they leave: start each "
        "gradient's all-reduce in its own hook",
        rank,
        expected="each all-reduce issued before the next gradient is ready",
        got=f"{late} of {len(events)} issued later",
    )
