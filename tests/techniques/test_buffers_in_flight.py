"""Techniques leave alone what they have in flight.

A recorder does not watch their buffers operator by operator, as it does the learner's. Here it
does.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.observe import buffers_in_flight
from course_lib.ranks import collect
from course_lib.techniques.collectives import halving_doubling_all_reduce, ring_all_reduce
from course_lib.techniques.context_parallel import (
    all_gather_attention,
    ring_attention,
    ulysses_attention,
    zigzag_split,
)
from course_lib.techniques.data_parallel import DataParallel
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.schedules import interleaved, one_f_one_b
from course_lib.techniques.zero3 import Zero3


def watch_all() -> None:
    buffers_in_flight.in_techniques = lambda frame: False


def layers(n: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(n)])


def rings() -> None:
    watch_all()
    for all_reduce in (ring_all_reduce, halving_doubling_all_reduce):
        all_reduce(torch.ones(40))
        all_reduce(torch.ones(3 << 20))  # in segments


def pipelines() -> None:
    watch_all()
    n, rank = dist.get_world_size(), dist.get_rank()
    for schedule, stages in ((one_f_one_b(n, 4), n), (interleaved(n, 4, 2), 2 * n)):
        mine = {stage: layers(1) for stage in range(rank, stages, n)}
        pipeline = Pipeline(mine, schedule, nn.functional.mse_loss)
        pipeline.train_step(torch.ones(8, 4), torch.zeros(8, 4))


def data_parallel() -> None:
    watch_all()
    model = DataParallel(layers(4), bucket_bytes=64, first_bucket_bytes=64)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


def sharded() -> None:
    watch_all()
    model = layers(4)
    zero = Zero3(model, lambda groups: torch.optim.AdamW(groups))
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        zero.step()


def cut_sequences() -> None:
    watch_all()
    split = zigzag_split(12, dist.get_world_size())
    for attention in (ring_attention, all_gather_attention, ulysses_attention):
        q, k, v = torch.ones(3, 1, 3, 4, 8, requires_grad=True)
        attention(q, k, v, split).sum().backward()


CARELESS = """
def reads_early(dist, room, other):
    flying = dist.irecv(room, other)
    early = room.sum()
    dist.send(room + 1, other)
    flying.wait()
"""


def careless(watched: bool) -> None:
    """A technique that reads what it has not received yet."""
    if watched:
        watch_all()
    made: dict = {}
    file = Path(buffers_in_flight.__file__).parents[1] / "techniques" / "made_up.py"
    exec(compile(CARELESS, file, "exec"), made)
    made["reads_early"](dist, torch.zeros(4), 1 - dist.get_rank())


@pytest.mark.parametrize(
    ("work", "size"),
    [(rings, 2), (pipelines, 2), (data_parallel, 2), (sharded, 2), (cut_sequences, 3)],
)
def test_nothing_in_flight_is_touched(work, size) -> None:
    assert collect(work, size).warnings == []


@pytest.mark.warned
def test_a_technique_that_does_is_found_here_and_only_here() -> None:
    assert {warning.kind for warning in collect(careless, 2, (True,)).warnings} == {
        "read_before_wait"
    }
    assert collect(careless, 2, (False,)).warnings == []
