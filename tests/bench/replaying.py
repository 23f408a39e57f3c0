"""Replayed runs against the clock on the wall, and what replaying and simulating cost.

Two ranks with a core each, and links fitted on the same machine. The link is measured with both
directions under way at once: on loopback the two share the cores, so a ring that is replayed with
one-way costs comes out at half its time.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
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
from course_lib.techniques.schedules import gpipe, one_f_one_b
from course_lib.techniques.stages import cut, layer_costs, split_by_cost
from tests.bench.row import Measurement, Row

_STEPS, _WARM_UP = 25, 5

# ------------------------------------------------------------------------------------------------
# The link of this machine
# ------------------------------------------------------------------------------------------------

_SIZES = [4**k for k in range(6, 11)]  # 4 kB to 1 MB, as in the runs below


def _exchange() -> list[float]:
    """Seconds in which two ranks swap messages, by size; lower quartiles, which are undisturbed."""
    other, found = 1 - dist.get_rank(), []
    for size in _SIZES:
        outgoing, seconds = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(60):  # each begins when the one before is over, so the two stay together
            start = time.perf_counter()
            arriving = torch.empty_like(outgoing)  # new memory, as whoever receives has it
            sending = dist.isend(outgoing, other)
            dist.recv(arriving, other)
            sending.wait()
            seconds.append(time.perf_counter() - start)
        found.append(statistics.quantiles(seconds, n=4)[0])
    return found


def _this_machine() -> Cluster:
    by_rank = collect(_exchange, 2, observe=False, timeout=120)
    seconds = [max(times) for times in zip(*by_rank, strict=True)]
    return replace(dgx_a100, name="this machine", inside=fit_link("loopback", _SIZES, seconds))


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


def _steps(make: Callable[[], Callable[[], object]], folder: str) -> list[float]:
    """Steps in turn recorded and timed; wall-clock seconds of the timed ones."""
    step, rank, seconds = make(), dist.get_rank(), []
    for number in range(_WARM_UP + _STEPS):
        dist.barrier()
        with Recorder(_journal(folder, number, rank)):
            step()
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds[_WARM_UP:]


def _journal(folder: str, number: int, rank: int) -> Path:
    return Path(folder, f"{number}-{rank}.journal")


def _replayed(make: Callable, cluster: Cluster) -> tuple[float, ...]:
    """Replayed time over wall-clock time of each step, turned over where the median is below 1."""
    with tempfile.TemporaryDirectory() as folder:
        results = collect(_steps, 2, (make, folder), observe=False, timeout=240)
        ratios = []
        for number, seconds in enumerate(zip(*results, strict=True), _WARM_UP):
            trace = read_trace({rank: _journal(folder, number, rank) for rank in range(2)})
            ratios.append(replay(trace, cluster).makespan / max(seconds))
    if statistics.median(ratios) < 1:
        ratios = [1 / ratio for ratio in ratios]
    return tuple(ratios)


def _against_the_wall() -> list[Measurement]:
    machine = _this_machine()
    link = machine.inside
    return [
        Measurement(
            "the link, both directions at once",
            note=f"{link.alpha * 1e6:.0f} us, {link.bandwidth / 1e9:.2f} GB/s",
        ),
        Measurement("two-stage pipeline", _replayed(_pipeline, machine), limit=1.15),
        Measurement("ring all-reduce of 2 MB", _replayed(_ring, machine), limit=1.25),
        Measurement("overlapped data parallel", _replayed(_data_parallel, machine), limit=1.25),
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
