"""What the threads of a rank share, and what each has of its own.

A rank may send from helper threads. What is a step of Python's own (a number from a counter, a line
appended to a list) needs nothing more; the tables of what is under way are changed under one lock,
which is never held while anything is sent or waited for.
"""

import os
import threading
from collections.abc import Iterator

from torch._C._distributed_c10d import Work

# Re-entrant, as garbage may be collected at any moment, and handles that nobody keeps tell of it.
lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # Another thread may hold it while the rank forks, and that thread is not in the child.
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]


class ThreadState(threading.local):
    """What belongs to one thread; the attributes are those of whoever looks.

    number: 0 in the thread that made this, then as they come.
    labels, begins: the labels that it has open, outermost first, and since when.
    fresh: the handle of its last operation, until it does something else.
    """

    def __init__(self, numbers: Iterator[int]):
        self.number = next(numbers)
        self.labels: list[str] = []
        self.begins: list[float] = []
        self.fresh: Work | None = None
