"""The second half of the ring all-reduce (Patarasuk & Yuan 2009).

    ring_all_gather(chunk, group=None) -> gathered
        Every rank returns all chunks in rank order, flat, as a new tensor of n * numel elements.
        `chunk` stays as it was.

n may be 1. Every rank sends n - 1 chunks, and only to a neighbour.
"""

import random

import torch

from course_lib.checks import reference
from course_lib.checks.call_answer import call_with_own_tensor, members_of
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank

from ._support import (
    ALONE,
    FLAT,
    POINT,
    drawn,
    half_of_ring,
    in_group,
    legible,
    new_tensor,
    ring,
)


def _all_gather_cases(rng: random.Random) -> list[Case]:
    return [
        legible(3, 2),
        drawn(rng, 4, 3),
        drawn(rng, 2, (), torch.bfloat16, clue=POINT),
        drawn(rng, 3, (2, 3), torch.float64, clue=FLAT),
        drawn(rng, 1, 4, clue=ALONE),
        drawn(rng, 5, 7, torch.float64),
        drawn(rng, 4, 1000, torch.int64),
        in_group(rng, 5, (1, 3, 4), 4),
    ]


def _judge_all_gather(case: Case, observation: Observation) -> Finding | None:
    chunks = case.data["inputs"]
    n, size = len(chunks), chunks[0].numel()
    flat = [chunk.flatten() for chunk in chunks]
    gathered = torch.cat(flat)
    lookalikes = {
        f"chunk {q} in every place: was it received into one buffer, over and over?": chunk.repeat(
            n
        )
        for q, chunk in enumerate(flat)
    } | {
        f"all chunks, but turned by {turn}: the chunk of rank q belongs in place q": gathered.roll(
            turn * size
        )
        for turn in range(1, n)
    }

    def of(me: int) -> dict[str, torch.Tensor]:
        """What other mistakes give on this rank, whose own chunk comes first."""
        arrived = {
            "as they arrive from the left": [flat[(me - step) % n] for step in range(n)],
            "as they arrive from the right": [flat[(me + step) % n] for step in range(n)],
        }
        return lookalikes | {
            f"all chunks, {words}, with the rank's own first: the chunk of rank q belongs in place "
            "q": torch.cat(chunks)
            for words, chunks in arrived.items()
            if not torch.equal(torch.cat(chunks), gathered)
        }

    return new_tensor(case, observation, lambda me: reference.moved(gathered), of) or ring(
        case,
        observation,
        (n - 1) * size,
        (n - 1) * size,
        f"a ring all-gather sends n-1 chunks, here {n - 1} of {size}",
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(chunk, group=None)",
    cases=_all_gather_cases,
    on_rank=call_with_own_tensor,
    own={"inputs": by_rank},
    groups=members_of,
    judge=_judge_all_gather,
    hints=(
        """
        The same ring without the adding: in every step a rank passes on the chunk that it got
        in the step before, and keeps a copy. It begins with its own.
        """,
        """
        Make one result with room for n chunks and receive straight into them. In step s
        rank r sends the chunk of rank r - s and receives that of rank r - s - 1, counted mod n.
        """,
        """
        chunk.new_empty(n * chunk.numel()) has the room, and its chunk(n) are views into it:
        what is written into a view is in the result. Put your own chunk in its place, then n -
        1 times: isend one to the right, recv the one before it from the left, wait.
        """,
    ),
    passed="every rank sends exactly n-1 chunks, to its neighbour",
    contract=half_of_ring("", "n-1 chunks"),
)
