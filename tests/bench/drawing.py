"""How long a view takes to draw: a slider should be followed at once."""

import statistics
import time

from tests.bench.measurement import Measurement, Row
from tests.views.examples import VIEWS

_DRAWN = 9
_LIMIT = 0.1  # seconds


def _measure() -> list[Measurement]:
    found = []
    for name, view in VIEWS.items():
        view().html()  # the script is read once
        seconds = []
        for _ in range(_DRAWN):
            began = time.thread_time()
            view().html()
            seconds.append(time.thread_time() - began)
        median = statistics.median(seconds)
        found.append(
            Measurement(name, tuple(s / _LIMIT for s in seconds), 1.0, f"{1000 * median:.0f} ms")
        )
    return found


ROWS = [Row("views", "drawing a view against 100 ms, p = 8, m = 32", _measure)]
