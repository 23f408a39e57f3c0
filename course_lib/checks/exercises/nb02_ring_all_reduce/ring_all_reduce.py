"""The ring all-reduce, for tensors of any size.

ring_all_reduce(tensor, group=None) -> tensor
    Sums `tensor` over the group, in place; any shape and number of elements, float32, float64,
    bfloat16 and int64. All ranks end with the same bits. A rank sends 2(n-1)/n of the tensor,
    padded to a multiple of n or cut into uneven chunks, only to a neighbour.
"""

import random

import torch

from course_lib.checks.call_answer import call_with_own_tensor, members_of
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank

from ._support import (
    ALONE,
    POINT,
    all_reduce_elements,
    drawn,
    in_group,
    in_place,
    legible,
    ring,
    uneven,
)


def _ring_all_reduce_cases(rng: random.Random) -> list[Case]:
    few = Clue(
        "there are fewer elements than ranks: with padding every chunk has one",
        "size",
        "shape",
        "IndexError",
    )
    return [
        legible(3, 6),
        drawn(rng, 2, 8),
        drawn(rng, 4, 10, clue=uneven(10, 4)),
        drawn(rng, 1, 5, clue=ALONE),
        drawn(rng, 3, (), clue=POINT),
        drawn(rng, 4, 3, torch.float64, clue=few),
        drawn(rng, 4, (7, 3), torch.float64, clue=uneven(21, 4)),
        drawn(rng, 4, 1003, torch.bfloat16, clue=uneven(1003, 4)),
        drawn(rng, 4, 21, torch.int64, clue=uneven(21, 4)),
        in_group(rng, 4, (0, 2, 3), 7),
        drawn(rng, 2, 100_001),
    ]


def _judge_ring_all_reduce(case: Case, observation: Observation) -> Finding | None:
    least, most = all_reduce_elements(case)
    rule = "a ring all-reduce sends 2(n-1)/n of the (padded) tensor"
    return in_place(case, observation) or ring(case, observation, least, most, rule)


EXERCISE = Exercise(
    module=__name__,
    signature="(tensor, group=None)",
    cases=_ring_all_reduce_cases,
    on_rank=call_with_own_tensor,
    own={"inputs": by_rank},
    groups=members_of,
    judge=_judge_ring_all_reduce,
    hints=(
        """
        An all-reduce is a reduce-scatter followed by an all-gather, and you have both. What is
        left is a tensor whose size does not divide by the number of ranks.
        """,
        """
        Make a flat tensor of zeros whose length is the next multiple of n, and copy the tensor
        into its beginning. Zeros change no sum. At the end as many elements as the tensor has
        come back, in its shape.
        """,
        """
        tensor.new_zeros(length) keeps dtype and device; the length is n *
        math.ceil(tensor.numel() / n). The padded tensor goes through ring_reduce_scatter, the
        chunk through ring_all_gather, each with the group. Then copy_ into tensor, with the
        padding cut off and view_as(tensor), and return tensor.
        """,
    ),
    passed="every rank sends 2(n-1)/n of the tensor to its neighbour, and all hold the same bits",
    contract=Contract(
        in_place="tensor",
        takes="any shape and size",
        dtypes=("float32", "float64", "bfloat16", "int64"),
        transposed=True,
        groups=True,
        allowed=POINT_TO_POINT,
        sends="each rank sends 2(n-1)/n of the tensor, which may be padded, to its neighbour in "
        "the ring",
    ),
    points=2,
)
