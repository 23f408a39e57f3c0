"""Why the ranks are stuck: pure functions of what they recorded.

Read it in this order:

    cause                   what is found: one sentence of why, one of what to try
    diagnose                where it begins: the collectives first, then the messages
    mismatched_collectives  the ranks of a group call something else, or not all of them call
    message_matching        then the messages: which send belongs to which receive
    deadlock_cause          ranks that wait for each other in a circle
    size_mismatch           a send and its receive of different sizes
    unmatched_message       a send or a receive to which the other rank does not come
    silent_mismatches       calls that do not fit together and pass all the same: warnings
    swapped_calls           of these, collectives that only their lines or shapes betray
    exception_advice        what to do about exceptions that only torch understands
"""

from .cause import Cause
from .diagnose import diagnose
from .exception_advice import advice
from .message_matching import SHIFTS_MESSAGES
from .silent_mismatches import silent_mismatches

__all__ = ["SHIFTS_MESSAGES", "Cause", "advice", "diagnose", "silent_mismatches"]
