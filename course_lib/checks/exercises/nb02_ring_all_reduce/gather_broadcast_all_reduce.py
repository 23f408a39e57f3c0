"""All-reduce through one rank: the simple way, and the busy link.

gather_broadcast_all_reduce(tensor) -> tensor
    Sums `tensor` over all ranks, in place: every rank sends its tensor to rank 0, which adds
    them up and sends the sum back to every rank. Only send and recv, blocking or not.
"""

import random

import torch

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import call_with_own_tensor
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank

from ._support import POINT, drawn, in_place, legible


def _gather_broadcast_cases(rng: random.Random) -> list[Case]:
    return [
        legible(3, 4),
        drawn(rng, 2, 5),
        drawn(rng, 4, (3, 5), torch.float64),
        drawn(
            rng, 1, 4, clue=Clue("one rank has nobody to send to", "rank of the current process")
        ),
        drawn(rng, 5, (), torch.int64, clue=POINT),
        drawn(rng, 3, 1003, torch.bfloat16),
    ]


def _judge_gather_broadcast(case: Case, observation: Observation) -> Finding | None:
    if finding := in_place(case, observation):
        return finding
    n, tensor = case.world_size, case.data["inputs"][0]
    size = tensor.numel() * tensor.element_size()
    for rank in range(n):
        share = size * (n - 1) if rank == 0 else min(n - 1, 1) * size
        if rank == 0:
            rule = f"rank 0 receives {n - 1} tensors and sends {n - 1}"
        else:
            rule = "every rank but 0 sends one tensor and receives one"
        finding = (
            traffic_limits.peers(
                observation, rank, range(n) if rank == 0 else {0}, "here all goes through rank 0"
            )
            or traffic_limits.sent(observation, rank, share, share, rule)
            or traffic_limits.received(observation, rank, share, share, rule)
        )
        if finding:
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(tensor)",
    cases=_gather_broadcast_cases,
    on_rank=call_with_own_tensor,
    own={"inputs": by_rank},
    judge=_judge_gather_broadcast,
    hints=(
        """
        Two phases: first everything flows to rank 0, which adds it up, then the sum flows back.
        Rank 0 and the others run different code, so the function branches on dist.get_rank().
        """,
        """
        What rank 0 receives must not overwrite what it has added up so far: receive into a
        second tensor, torch.empty_like(tensor). It goes through the other ranks twice, once to
        receive and add, once to send. Each of the others sends once and receives once.
        """,
        """
        Rank 0, for every other rank: recv into the second tensor, then tensor.add_(that). When
        all are in, send tensor to every other rank. The others: send tensor to 0, recv the sum
        from 0 into the same tensor. And what do all of them return?
        """,
    ),
    passed="rank 0 receives n-1 tensors and sends n-1",
    contract=Contract(
        in_place="tensor",
        takes="any shape",
        dtypes=("float32", "float64", "bfloat16", "int64"),
        allowed=POINT_TO_POINT,
        separate=True,
        sends="rank 0 receives n-1 tensors and sends n-1, every other rank one",
    ),
)
