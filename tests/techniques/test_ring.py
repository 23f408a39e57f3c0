"""The ring's two ways of making the same hops: one by one, and in segments under way together."""

import threading

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.collectives.members import Members
from course_lib.techniques.collectives.pipelined_ring import pipelined, spreading, summing
from course_lib.techniques.collectives.ring import (
    all_gather_one_by_one,
    reduce_scatter_one_by_one,
    ring_all_reduce,
)

CHUNK = 10  # elements


def chunks_of(rank: int, n: int) -> list[torch.Tensor]:
    # Rank r's part is the digit 10^r, so that a missing or doubled part shows which it is.
    return [torch.full((CHUNK,), 10**rank) * (i + 1) for i in range(n)]


def one_by_one(*phases: str):
    """Reduce-scatter ("sum"), all-gather ("spread"), or the one and then the other."""
    members = Members.of(None)
    chunks = chunks_of(members.rank, len(members))
    if "sum" in phases:
        reduce_scatter_one_by_one(chunks, members)
    if "spread" in phases:
        all_gather_one_by_one(chunks, members)
    return chunks


def in_segments(*phases: str, **options):
    """The same by the hops of both at once."""
    members = Members.of(None)
    chunks = chunks_of(members.rank, len(members))
    adding = summing(chunks, members) if "sum" in phases else []
    copying = spreading(chunks, members) if "spread" in phases else []
    pipelined(adding, copying, members, **options)
    return chunks


# Segments of one element, of some that do not divide the chunk, of half, of all and of more.
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_segments_give_what_whole_chunks_give(world_size: int) -> None:
    sizes = [1, 3, 5, 10, 11]

    phases = [("sum",), ("spread",), ("sum", "spread")]

    def all_ways():
        answers = {"one by one": [one_by_one(*phase) for phase in phases]}
        for size in sizes:
            answers[size] = [in_segments(*phase, segment_bytes=8 * size) for phase in phases]
        return answers

    ones = int("1" * world_size)
    for rank, answers in enumerate(collect(all_ways, world_size)):
        assert len(answers) == len(sizes) + 1
        for how, (summed, gathered, reduced) in answers.items():
            assert (summed[rank] == ones * (rank + 1)).all(), how
            for i in range(world_size):
                assert (gathered[i] == 10**i * (i + 1)).all(), how
                assert (reduced[i] == ones * (i + 1)).all(), how


def test_segments_cost_messages_but_no_bytes() -> None:
    def run(segment_bytes: int):
        in_segments("sum", segment_bytes=segment_bytes)

    whole = collect(run, 3, (1000,)).trace.traffic()
    cut = collect(run, 3, (8 * 4,)).trace.traffic()
    assert list(cut.sent) == list(whole.sent) == [2 * CHUNK * 8] * 3
    assert list(whole.messages) == [2] * 3
    assert list(cut.messages) == [2 * 3] * 3


def test_the_next_segment_leaves_before_the_last_has_arrived() -> None:
    def run():
        in_segments("sum", segment_bytes=8 * 5)

    for rank in range(2):
        events = collect(run, 2).trace.of(rank)
        first_wait = min(e.waited for e in events if e.op == "recv")
        early = [e for e in events if e.op == "send" and e.issued < first_wait]
        assert len(early) == 2


def test_the_second_phase_is_awaited_before_the_first_is_added_up() -> None:
    def run():
        in_segments("sum", "spread")

    trace = collect(run, 2).trace
    for rank in range(2):
        events = trace.of(rank)
        partial, complete = [e for e in events if e.op == "send"]
        _, replacing = [e for e in events if e.op == "recv"]
        assert partial.done <= replacing.issued <= complete.issued


def test_a_rank_keeps_what_it_did_not_receive() -> None:
    # The control: without any hop, no rank has another's part.
    alone = collect(lambda: chunks_of(dist.get_rank(), 2), 2)
    assert not torch.equal(alone[0][0], alone[1][0])


def test_rings_in_two_threads_do_not_share_the_buffer_they_land_in() -> None:
    def run():
        groups = [dist.new_group() for _ in range(2)]
        tensors = [torch.full((1_000_000,), float(k + 1)) for k in range(2)]
        together = threading.Barrier(2)

        def repeat(k: int) -> None:
            for _ in range(8):
                together.wait()
                ring_all_reduce(tensors[k], groups[k])

        threads = [threading.Thread(target=repeat, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [(tensor == (k + 1) * 2**8).all().item() for k, tensor in enumerate(tensors)]

    assert list(collect(run, 2, observe=False)) == [[True, True]] * 2
