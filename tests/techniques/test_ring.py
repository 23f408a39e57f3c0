"""The ring's two ways of making the same hops: one by one, and in segments under way together."""

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.collectives.members import Members
from course_lib.techniques.collectives.ring import one_by_one, pipelined

CHUNK = 10  # elements


def chunks_of(rank: int, n: int) -> list[torch.Tensor]:
    # Rank r's part is the digit 10^r, so that a missing or doubled part shows which it is.
    return [torch.full((CHUNK,), 10**rank) * (i + 1) for i in range(n)]


def make_hops(travel, add: bool, **options):
    members = Members.of(None)
    n, r = len(members), members.place
    chunks = chunks_of(r, n)
    shift = 1 if add else 0
    hops = [
        (chunks[(r - step - shift) % n], chunks[(r - step - shift - 1) % n])
        for step in range(n - 1)
    ]
    travel(hops, members, add=add, **options)
    return chunks


# Segments of one element, of some that do not divide the chunk, of half, of all and of more.
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_segments_give_what_whole_chunks_give(world_size: int) -> None:
    sizes = [1, 3, 5, 10, 11]

    def both():
        answers = {"one by one": [make_hops(one_by_one, add) for add in (True, False)]}
        for size in sizes:
            answers[size] = [
                make_hops(pipelined, add, segment_bytes=8 * size) for add in (True, False)
            ]
        return answers

    ones = int("1" * world_size)
    for rank, answers in enumerate(collect(both, world_size)):
        assert len(answers) == len(sizes) + 1
        for how, (summed, gathered) in answers.items():
            assert (summed[rank] == ones * (rank + 1)).all(), how
            for i, chunk in enumerate(gathered):
                assert (chunk == 10**i * (i + 1)).all(), how


def test_segments_cost_messages_but_no_bytes() -> None:
    def run(segment_bytes: int):
        make_hops(pipelined, True, segment_bytes=segment_bytes)

    whole = collect(run, 3, (1000,)).trace.traffic()
    cut = collect(run, 3, (8 * 4,)).trace.traffic()
    assert list(cut.sent) == list(whole.sent) == [2 * CHUNK * 8] * 3
    assert list(whole.messages) == [2] * 3
    assert list(cut.messages) == [2 * 3] * 3


def test_the_next_segment_leaves_before_the_last_has_arrived() -> None:
    def run():
        make_hops(pipelined, True, segment_bytes=8 * 5)

    for rank in range(2):
        events = collect(run, 2).trace.of(rank)
        first_wait = min(e.waited for e in events if e.op == "recv")
        early = [e for e in events if e.op == "send" and e.issued < first_wait]
        assert len(early) == 2


def test_a_rank_keeps_what_it_did_not_receive() -> None:
    # The control: without any hop, no rank has another's part.
    alone = collect(lambda: chunks_of(dist.get_rank(), 2), 2)
    assert not torch.equal(alone[0][0], alone[1][0])
