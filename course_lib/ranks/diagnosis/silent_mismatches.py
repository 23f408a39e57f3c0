"""Calls that do not fit together and yet pass: gloo moves bytes, whatever they are bytes of.

No single rank can see it. Its record and its partner's, side by side, can.
"""

from course_lib.observe import CommEvent, RankWarning, Trace
from course_lib.observe.event_wording import location
from course_lib.ranks.wording import bytes_text

from .message_matching import SHIFTS_MESSAGES
from .mismatched_collectives import passed_unequal
from .swapped_calls import swapped_calls


def silent_mismatches(trace: Trace) -> list[RankWarning]:
    """A warning for each line that received, and each group that combined, what was not meant."""
    matching = trace.match()
    shifted = {warning.rank for warning in trace.warnings if warning.kind in SHIFTS_MESSAGES}
    found: dict[tuple, RankWarning] = {}
    for send, recv in matching.pairs:
        lines = (recv.rank, recv.where, send.where)
        if (
            recv.done is not None
            and lines not in found
            and not shifted & {send.rank, recv.rank}
            and (said := _message(send, recv))
        ):
            found[lines] = RankWarning(
                recv.rank, "mismatched_message", said, recv.where, send.where
            )
    together = [*passed_unequal(matching.groups), *swapped_calls(matching.groups)]
    return [*found.values(), *together]


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
    sent, received = location(send.where), location(recv.where)
    return (
        f"rank {send.rank} sends {bytes_text(send)} in {sent}, and rank {recv.rank} receives into "
        f"{bytes_text(recv)} in {received}: {', and '.join(happened)}, without an error. Receive "
        f"into a tensor of the dtype and shape that is sent"
    )
