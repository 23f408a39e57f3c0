"""Progress of a long run: each rank reports its steps, the kernel shows one bar.

The bar lives in a display that starts and ends empty, so the stored notebook keeps nothing of it.
"""

import time
from typing import Any

from .run_directory import RunDir

_SECONDS_BETWEEN_REPORTS = 0.1
_SECONDS_BEFORE_BAR = 1.0

_reporter: "_Reporter | None" = None


class _Reporter:
    def __init__(self, run_dir: RunDir, rank: int):
        self.run_dir, self.rank, self.last = run_dir, rank, 0.0

    def report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.last >= _SECONDS_BETWEEN_REPORTS or done >= total:
            self.last = now
            self.run_dir.tell(rank=self.rank, kind="step", done=done, total=total)


def attach(run_dir: RunDir, rank: int) -> None:
    """Called once in each rank's process, before the learner's function."""
    global _reporter
    _reporter = _Reporter(run_dir, rank)


def report_step(done: int, total: int) -> None:
    """Tell the kernel that this rank has done `done` of `total` steps.

    Cheap enough for every step: at most ten reports per second are sent. Outside `run_ranks`, for
    example under torchrun, it does nothing.
    """
    if total < 1 or done < 0:
        raise ValueError(f"report_step needs 0 <= done and 1 <= total, not {done} and {total}")
    if _reporter:
        _reporter.report(done, total)


class Bar:
    """The kernel's side: the least advanced rank, shown once a run takes longer than a second."""

    def __init__(self, world_size: int):
        self.steps: dict[int, tuple[int, int]] = {}
        self.world_size = world_size
        self.started = time.monotonic()
        self.display: Any = None

    def update(self, rank: int, done: int, total: int) -> None:
        self.steps[rank] = (done, total)
        if time.monotonic() - self.started < _SECONDS_BEFORE_BAR:
            return
        if self.display is None:
            self.display = _empty_display()
        if self.display:
            slowest = min((self.steps.get(r, (0, 1)) for r in range(self.world_size)), key=_share)
            self.display.update({"text/plain": self.text(*slowest)}, raw=True)

    @staticmethod
    def text(done: int, total: int, width: int = 40) -> str:
        filled = round(width * min(1.0, done / total))
        return f"{'█' * filled}{'░' * (width - filled)} step {done} of {total}"

    def close(self) -> None:
        if self.display:
            self.display.update({}, raw=True)


def _share(step: tuple[int, int]) -> float:
    return step[0] / step[1]


def _empty_display() -> Any:
    try:
        from IPython import display, get_ipython
    except ImportError:
        return False
    if get_ipython() is None or not hasattr(get_ipython(), "kernel"):
        return False
    return display.display({}, raw=True, display_id=True)
