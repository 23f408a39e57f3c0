"""Why the ranks are stuck: pure functions of what they recorded.

Read it in this order:

    cause                   what is found: one sentence of why, one of what to try
    diagnose                where it begins: the collectives first, then the messages
    different_collectives   the ranks of a group call something else, or not all of them call
    message_matching        sends and receives that do not belong together, or wait in a circle
    unmatched_message       a send or a receive to which the other rank does not come
    silent_mismatches       calls that do not fit together and pass all the same: warnings
    swapped_calls           of these, collectives that only their lines or shapes betray
    advice                  what to do about exceptions that only torch understands
"""

from .advice import advice
from .cause import Cause
from .diagnose import diagnose
from .message_matching import SHIFTS_MESSAGES
from .silent_mismatches import silent_mismatches

__all__ = ["SHIFTS_MESSAGES", "Cause", "advice", "diagnose", "silent_mismatches"]
