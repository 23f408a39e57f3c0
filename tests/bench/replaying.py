"""Replayed runs against the clock on the wall, and what replaying and simulating cost.

Two ranks with a core each, and the link between them fitted in the same run: how long a message
takes depends on which core the system puts whom, which differs from one pair of processes to the
next. It is measured with both directions under way at once: on loopback the two share the cores, so
a ring that is replayed with one-way costs comes out at half its time.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.observe import Recorder, read_trace
from course_lib.ranks import collect
from course_lib.simulate import Cluster, dgx_a100, fit_link, replay, simulate
from course_lib.techniques.collectives import ring_all_reduce
from course_lib.techniques.data_parallel import DataParallel
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.pipeline.partition import cut, layer_costs, split_by_cost
from course_lib.techniques.schedules import gpipe, one_f_one_b
from tests.bench.measurement import Measurement, Row

_WARM_UP = 5

# ------------------------------------------------------------------------------------------------
# The runs
# ------------------------------------------------------------------------------------------------


def _pipeline() -> Callable[[], object]:
    """GPipe over two stages."""
    tokens, targets = next(batches(1, 128))
    model = tiny_gpt(layers=4, hidden=128, seed=0)
    layers = nn.Sequential(model.embedding, *model.blocks, model.head)
    part = cut(layers, split_by_cost(layer_costs(layers, tokens), 2))[dist.get_rank()]
    pipeline = Pipeline({dist.get_rank(): part}, gpipe(2, 4), token_loss)
    return lambda: pipeline.train_step(tokens, targets)


def _ring() -> Callable[[], object]:
    """A ring all-reduce of 2 MB."""
    tensor = torch.ones(1 << 19)
    return lambda: ring_all_reduce(tensor)


def _data_parallel() -> Callable[[], object]:
    """Backward with the all-reduce of each bucket under way beside it."""
    tokens, targets = next(batches(1, 128))
    model = DataParallel(tiny_gpt(hidden=128, seed=0), bucket_bytes=500_000)
    return lambda: token_loss(model(tokens), targets).backward()


_SIZES = [4**k for k in range(6, 11)]  # bytes: 4 kB to 1 MB, as in these runs


def _exchange(size: int) -> float:
    """Seconds in which two ranks swap messages of `size` bytes."""
    other, outgoing = 1 - dist.get_rank(), torch.zeros(size, dtype=torch.uint8)
    dist.barrier()
    start = time.perf_counter()
    arriving = torch.empty_like(outgoing)  # new memory, as whoever receives has it
    receiving = dist.irecv(arriving, other)
    sending = dist.isend(outgoing, other)
    receiving.wait()
    sending.wait()
    return time.perf_counter() - start


@dataclass
class _Seconds:
    """On the wall of one rank: of each step, and of each exchange by its size."""

    steps: list[float] = field(default_factory=list)
    exchanges: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))


def _steps(make: Callable[[], Callable[[], object]], steps: int, folder: str) -> _Seconds:
    """Steps in turn recorded and timed, and exchanges between them."""
    step, rank, seconds = make(), dist.get_rank(), _Seconds()
    for number in range(_WARM_UP + steps):
        for size in _SIZES:
            seconds.exchanges[size].append(_exchange(size))
        dist.barrier()
        with Recorder(_journal(folder, number, rank)):
            step()
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.steps.append(time.perf_counter() - start)
    return seconds


def _journal(folder: str, number: int, rank: int) -> Path:
    return Path(folder, f"{number}-{rank}.journal")


def _this_machine(seconds: Sequence[_Seconds]) -> Cluster:
    """With a link that explains the median exchanges."""
    medians = [
        max(statistics.median(rank.exchanges[size][_WARM_UP:]) for rank in seconds)
        for size in _SIZES
    ]
    return replace(dgx_a100, name="this machine", inside=fit_link("loopback", _SIZES, medians))


def _replayed(what: str, make: Callable, steps: int, limit: float) -> Measurement:
    """Replayed time over wall-clock time of each step, turned over where the median is below 1."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = list(collect(_steps, 2, (make, steps, folder), observe=False, timeout=240))
        machine = _this_machine(seconds)
        ratios = []
        for number in range(_WARM_UP, _WARM_UP + steps):
            trace = read_trace({rank: _journal(folder, number, rank) for rank in range(2)})
            wall = max(rank.steps[number] for rank in seconds)
            ratios.append(replay(trace, machine).makespan / wall)
    if statistics.median(ratios) < 1:
        ratios = [1 / ratio for ratio in ratios]
    link = machine.inside
    note = f"on a link of {link.alpha * 1e6:.0f} us and {link.bandwidth / 1e9:.2f} GB/s"
    return Measurement(what, tuple(ratios), limit, note)


def _against_the_wall() -> list[Measurement]:
    return [
        _replayed("two-stage pipeline", _pipeline, steps=25, limit=1.15),
        # Its messages wake a thread at each end, soon or late; steps of 2 ms scatter widely.
        _replayed("ring all-reduce of 2 MB", _ring, steps=201, limit=1.25),
        _replayed("overlapped data parallel", _data_parallel, steps=25, limit=1.25),
    ]


# ------------------------------------------------------------------------------------------------
# Cost in operations
# ------------------------------------------------------------------------------------------------


def _doubling() -> list[Measurement]:
    """Twice the microbatches take twice as long: 64 stages, up to half a million operations."""
    found, before = [], None
    for m in (512, 1024, 2048, 4096):
        schedule = one_f_one_b(64, m)
        seconds = min(_seconds(lambda s=schedule: simulate(s)) for _ in range(3))
        operations = sum(map(len, schedule))
        note = f"{seconds:6.2f} s, {seconds / operations * 1e6:.2f} us an operation"
        note += f", {seconds / before:.2f} times the one above" if before else ""
        found.append(Measurement(f"64 stages, {m} microbatches: {operations:,}", note=note))
        before = seconds
    return [*found, Measurement("the last one, of 1 second", (seconds,), limit=1.0)]


def _seconds(call: Callable[[], object]) -> float:
    """Of the processor: there is nothing to wait for."""
    start = time.process_time()
    call()
    return time.process_time() - start


ROWS = [
    Row(
        "replay",
        "a replayed step against the wall clock, the larger to the smaller",
        _against_the_wall,
    ),
    Row("doubling", "simulating twice as many operations", _doubling),
]
