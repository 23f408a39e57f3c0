"""Pipeline schedules: who runs what, and when, as plain data. Loads nothing, not even torch.

To read in this order:

    text      what a schedule is, and how it is written down
    builders  naive, GPipe, 1F1B, interleaved, zero-bubble
    validity  what makes a schedule right

Needs no neighbour.
"""

from .builders import BY_NAME, gpipe, interleaved, naive, one_f_one_b, zb_h1
from .text import (
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
