"""What Linux does for a process that asks for it, prctl(2). Elsewhere nothing happens."""

import ctypes
import signal
import sys

_SET_PDEATHSIG, _SET_DUMPABLE, _CAPBSET_DROP = 1, 4, 24
_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 36, 38


def die_with_parent() -> None:
    """Be killed when the process that made this one ends."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent has ended."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def drop_capability(number: int) -> None:
    """Give a right up for good, for this process and all that it starts."""
    _prctl(_CAPBSET_DROP, number)


def never_gain_rights() -> None:
    """Let no program that is started from here on have more rights than this process."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def own_its_proc() -> None:
    """Own /proc/self again, which a change of user takes away."""
    _prctl(_SET_DUMPABLE, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
