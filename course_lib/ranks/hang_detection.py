"""Whether ranks wait for each other, so that none of them will ever go on.

They do if every one of them is inside a communication and nothing moves: no rank's journal grows,
and none uses its processor. Over loopback a message that is on its way keeps a processor busy.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from course_lib.observe import Frame, Trace, read_trace

from .run_directory import RunDir

_STILL = 1.5  # seconds in which nothing may move
_IDLE = 0.05  # processor seconds that do not count: gloo's threads look round now and then
# A message whose handle was dropped may keep gloo's thread busy for ever, with nothing on its way.
_STILL_BUSY = 3.0
_STILL_UNSEEN = 5.0  # where the processor time of a process cannot be read (macOS)


class HangDetector:
    """Looks at the ranks of a run again and again.

    pids: by rank, filled as processes start. observed: whether there are journals to read.
    stack: the frames of a rank's main thread now, innermost first.
    """

    def __init__(
        self,
        run_dir: RunDir,
        pids: Mapping[int, int],
        observed: bool,
        stack: Callable[[int], list[Frame]],
    ):
        self.run_dir, self.pids, self.observed, self.stack = run_dir, pids, observed, stack
        # Since when nothing moved: the moment, each rank's journal and processor time at it.
        self._still_since: tuple[float, list[int], list[float]] = (time.monotonic(), [], [])
        # Since when no journal grew, whatever the processors do; None once this was looked into.
        self._silent_since: tuple[float | None, list[int]] = (time.monotonic(), [])

    def deadlocked(self, ranks: list[int]) -> bool:
        """Whether all `ranks`, those that have not finished, wait for each other."""
        now = time.monotonic()
        written = [size_of(self.run_dir.of(rank, "journal")) for rank in ranks]
        seconds = [_processor_seconds(self.pids.get(rank)) for rank in ranks]
        silent_since, silent_at = self._silent_since
        if written != silent_at:
            self._silent_since = (now, written)
        elif silent_since is not None and now - silent_since >= _STILL_BUSY:
            self._silent_since = (None, written)
            if self.all_blocked(ranks) and self._lost_a_message():
                return True
        since, written_then, seconds_then = self._still_since
        # Journals of other lengths, or another number of them: a rank has gone on, or finished.
        if written != written_then or any(
            now_used - used > _IDLE for now_used, used in zip(seconds, seconds_then, strict=True)
        ):
            self._still_since = (now, written, seconds)
            return False
        patience = _STILL if sys.platform == "linux" else _STILL_UNSEEN
        return now - since >= patience and self.all_blocked(ranks)

    def all_blocked(self, ranks: list[int]) -> bool:
        """Whether each of them is inside a communication, in its main thread or in others."""
        if not self.observed:
            return False
        trace = self._trace(ranks)
        waiting = {rank: event for rank in ranks if (event := trace.waiting(rank))}
        helpers = [rank for rank, event in waiting.items() if event.thread]
        return len(waiting) == len(ranks) and all(map(self._waits_for_a_thread, helpers))

    def _waits_for_a_thread(self, rank: int) -> bool:
        """Whether the rank's main thread is in a join, a lock or a future, and not in a sleep."""
        frames = self.stack(rank)
        return bool(frames) and frames[0].file == threading.__file__

    def _lost_a_message(self) -> bool:
        """Whether a rank, finished or not, has dropped the handle of a send."""
        warnings = self._trace(self.pids).warnings
        return any(warning.kind == "never_waited" for warning in warnings)

    def _trace(self, ranks: Iterable[int]) -> Trace:
        return read_trace({rank: self.run_dir.of(rank, "journal") for rank in ranks})


def size_of(path: os.PathLike) -> int:
    """Bytes of a file; 0 for none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _processor_seconds(pid: int | None) -> float:
    """What all threads of `pid` have used so far; 0.0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
