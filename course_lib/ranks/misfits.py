"""Calls that do not fit together and yet pass: gloo moves bytes, whatever they are bytes of.

One rank alone cannot see it. Its record and its partner's, side by side, can.
"""

from course_lib.observe import CommEvent, Trace, Trap
from course_lib.observe.wording import place

from .lineup import passed_unequal
from .pairing import SHIFTS_MESSAGES
from .wording import bytes_text


def misfits(trace: Trace) -> list[Trap]:
    """A note for each line that received, and each group that combined, what was not meant so."""
    matching = trace.match()
    shifted = {trap.rank for trap in trace.traps if trap.kind in SHIFTS_MESSAGES}
    found: dict[tuple, Trap] = {}
    for send, recv in matching.pairs:
        lines = (recv.rank, recv.where, send.where)
        if (
            recv.done is not None
            and lines not in found
            and not shifted & {send.rank, recv.rank}
            and (said := _message(send, recv))
        ):
            found[lines] = Trap(recv.rank, "mismatched_message", said, recv.where, send.where)
    return [*found.values(), *passed_unequal(matching.groups)]


def _message(send: CommEvent, recv: CommEvent) -> str:
    """What is wrong with what arrived; "" if nothing is."""
    happened = []
    if send.dtype != recv.dtype:
        happened.append("gloo copies bytes and converts nothing, so other numbers arrive")
    if send.nbytes < recv.nbytes:
        who = "it" if happened else "gloo"
        happened.append(
            f"{who} fills the first {send.nbytes} bytes and leaves the other "
            f"{recv.nbytes - send.nbytes} as they were"
        )
    if not happened:
        return ""
    return (
        f"rank {send.rank} sends {bytes_text(send)} in {place(send.where)}, and rank {recv.rank} "
        f"receives into {bytes_text(recv)} in {place(recv.where)}: {', and '.join(happened)}, "
        f"without an error. Receive into a tensor of the dtype and shape that is sent"
    )
