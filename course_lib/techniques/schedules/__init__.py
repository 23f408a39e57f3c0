"""Pipeline schedules: who runs what, and when, as plain data. Loads nothing, not even torch.

A model is cut into p stages on p ranks; a batch into m microbatches. While the first microbatch
travels forward and the last one back, ranks stand idle: the bubble. With equal stages, in the order
in which to read them:

    schedule     what a schedule is, and how it is written down
    gpipe        naive: bubble (p-1)/p of the time: one rank works, the others wait
                 GPipe: (p-1)/(m+p-1) of the time,   m microbatches in flight
    one_f_one_b  the same bubble,                    min(m, p - s) in flight on stage s
    interleaved  about 1/v of that bubble,           more in flight, v times the messages
    zero_bubble  ZB-H1: a third of 1F1B's idle time, memory as 1F1B
    by_name      all of them, by the names that papers give them
    validity     what makes a schedule right, of which sizes

(p-1)/m, also in use, is the same idle time as a part of the working time.

There is a function for each schedule, which returns a table. A row runs from left to right,
whenever what an operation needs has arrived (validity.py). Backward passes go through the
microbatches in the order of the forward passes, in all schedules, so gradients are summed in one
order and come out equal to the last bit. Needs no neighbour.
"""

from .by_name import BY_NAME
from .gpipe import gpipe, naive
from .interleaved import interleaved
from .one_f_one_b import one_f_one_b
from .schedule import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    KINDS,
    Op,
    Schedule,
    format_schedule,
    parse_op,
    parse_schedule,
)
from .validity import (
    check_complete,
    check_order,
    needs,
    num_microbatches,
    num_stages,
    result_of,
    validate,
)
from .zero_bubble import zb_h1

__all__ = [
    "BACKWARD",
    "BACKWARD_INPUT",
    "BACKWARD_WEIGHT",
    "BY_NAME",
    "FORWARD",
    "KINDS",
    "Op",
    "Schedule",
    "check_complete",
    "check_order",
    "format_schedule",
    "gpipe",
    "interleaved",
    "naive",
    "needs",
    "num_microbatches",
    "num_stages",
    "one_f_one_b",
    "parse_op",
    "parse_schedule",
    "result_of",
    "validate",
    "zb_h1",
]
