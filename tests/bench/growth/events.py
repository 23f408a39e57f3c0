"""Replaying a recording by its events."""

import contextlib
import gc
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from course_lib.observe import Trace
from course_lib.ranks import collect
from course_lib.simulate import dgx_a100, replay
from tests.bench._growth import growing, why
from tests.bench.measurement import Measurement, Row

_MESSAGES = [2**power for power in range(9, 14)]  # of each rank
_AT_ONCE = 128


def _swap(messages: int) -> None:
    """Send messages to the other rank and receive as many, a good number of them at once."""
    other, tensor = 1 - dist.get_rank(), torch.zeros(16)
    arriving = [torch.empty_like(tensor) for _ in range(_AT_ONCE)]
    for _ in range(messages // _AT_ONCE):
        under_way = [dist.irecv(each, other) for each in arriving]
        under_way += [dist.isend(tensor, other) for _ in range(_AT_ONCE)]
        for work in under_way:
            work.wait()


def _seconds(trace: Trace) -> float:
    """Of the processor, the least of three: there is nothing to wait for."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        replay(trace, dgx_a100)
        taken.append(time.process_time() - began)
    return min(taken)


def _replayed() -> Iterator[tuple[str, dict[str, float]]]:
    for messages in _MESSAGES:
        trace = collect(_swap, 2, (messages,), timeout=120).trace
        events, seconds = len(trace.events), _seconds(trace)
        with _no_collector():
            without = _seconds(trace)
        yield (
            f"{events}",
            {
                "s": seconds,
                "us per event": 1e6 * seconds / events,
                "us without the garbage collector": 1e6 * without / events,
            },
        )


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _measure() -> list[Measurement]:
    lines = growing(_replayed())
    first, last = lines[0].values, lines[-1].values
    reason = (
        f"each event is played once, for {first['us per event']:.1f} us and at last "
        f"{last['us per event']:.1f} us; Python's garbage collector, which looks at all that is "
        f"kept, has {last['us per event'] - last['us without the garbage collector']:.1f} us of it"
    )
    return [*lines, why(reason)]


ROWS = [Row("growth-events", "replay of messages between two ranks by events", _measure)]
