"""The first half of the ring all-reduce (Patarasuk & Yuan 2009).

    ring_reduce_scatter(tensor, group=None) -> chunk
        Rank r of the group returns chunk r of the sum: a new 1-D tensor of numel / n elements.
        `tensor` stays as it was; its numel is a multiple of n, the size of the group.
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
    drawn,
    half_of_ring,
    in_group,
    legible,
    new_tensor,
    own_inputs,
    ring,
)


def _reduce_scatter_cases(rng: random.Random) -> list[Case]:
    return [
        legible(3, 6),
        drawn(rng, 4, 8),
        drawn(rng, 2, 2, torch.float64),
        drawn(rng, 1, 3, clue=ALONE),
        drawn(rng, 5, 35, torch.bfloat16),
        drawn(rng, 4, (4, 6), clue=FLAT),
        drawn(rng, 3, 999, torch.int64),
        in_group(rng, 5, (1, 3, 4), 12),
    ]


def _judge_reduce_scatter(case: Case, observation: Observation) -> Finding | None:
    tensors = case.data["inputs"]
    n = len(tensors)
    chunk = tensors[0].numel() // n
    summed = reference.total(own_inputs(case))

    def chunk_of(me: int) -> reference.Reference:
        return summed.flat(me * chunk, (me + 1) * chunk)

    def lookalikes(me: int) -> dict[str, torch.Tensor]:
        others = {
            f"chunk {q} of the sum, and rank {me} should return chunk {me}": chunk_of(q).value
            for q in range(n)
            if q != me
        }
        return others | {
            f"the rank's own chunk {q}, with nothing added": piece
            for q, piece in enumerate(tensors[me].reshape(-1).split(chunk))
        }

    return new_tensor(case, observation, chunk_of, lookalikes) or ring(
        case,
        observation,
        (n - 1) * chunk,
        (n - 1) * chunk,
        f"a ring reduce-scatter sends (n-1)/n of the tensor, here {n - 1} chunks of {chunk}",
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(tensor, group=None)",
    cases=_reduce_scatter_cases,
    on_rank=call_with_own_tensor,
    own={"inputs": by_rank},
    groups=members_of,
    judge=_judge_reduce_scatter,
    hints=(
        """
        In every step each rank passes one chunk to its right neighbour, and adds the chunk that
        comes from the left to its own copy of it. A chunk that has met all n ranks is finished:
        n - 1 steps. With which chunk must a rank begin, so that chunk r is finished when it
        arrives at rank r?
        """,
        """
        Chunk r ends on rank r after n - 1 steps to the right, so it began on rank r + 1. Draw
        the case n = 3: in step s rank r sends chunk r - 1 - s and receives chunk r - 2 - s,
        counted mod n. If all ranks send before they receive, all wait for ever: let the send
        run beside the receive with isend, and wait for it afterwards.
        """,
        """
        Before the loop: a flat copy of the tensor cut into n chunks (clone, then chunk), a
        spare chunk to receive into, the two neighbours, counted in the group. In each step: start
        isend of one chunk, recv into the spare, wait for the isend, add the spare to its chunk.
        After the loop chunk r is the answer.
        """,
    ),
    passed="every rank sends exactly (n-1)/n of the tensor, to its neighbour",
    contract=half_of_ring(
        " whose number of elements divides by n", "(n-1)/n of the tensor", separate=True
    ),
)
