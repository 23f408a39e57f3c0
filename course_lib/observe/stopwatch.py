"""How long a rank computes, in processor time of its own thread.

Four ranks on two cores take turns, so a clock on the wall counts the others' work as well. The
thread's own time (`time.thread_time`) goes on only while the rank runs: it is what the rank would
take on a core of its own. Time inside torch.distributed, waiting or not, is left out, and so is the
recorder's. On a GPU this is the time to launch the work, not to do it.
"""

import threading
import time
from collections.abc import Sequence

from .journal import JournalWriter


class Stopwatch:
    """Writes a stretch of computation to the journal at every `stop`.

    spans: the labels that are open, outermost first.
    """

    def __init__(self, journal: JournalWriter, spans: Sequence[str]):
        self._journal, self._spans = journal, spans
        self._thread = threading.get_ident()
        self._started: tuple[float, float] | None = None

    def start(self) -> None:
        """The rank computes from now on."""
        if threading.get_ident() == self._thread:
            self._started = time.monotonic(), time.thread_time()

    def stop(self) -> None:
        """Until now; something else begins, or another label."""
        if self._started and threading.get_ident() == self._thread:
            start, before = self._started
            seconds = time.thread_time() - before
            self._journal.compute(start, time.monotonic(), seconds, self._spans)
            self._started = None
