"""All-reduce by recursive halving and doubling (Rabenseifner; Thakur et al. 2005).

halving_doubling_all_reduce(tensor, group=None) -> tensor
    Sums `tensor` over a group of n = 2^k ranks, in place, any size: halves are exchanged with
    rank r XOR n/2, then quarters with r XOR n/4, and so on; then the same way back. 2 log2(n)
    messages per rank, and the bytes of the ring. The order of the distances is free.
"""

import random
from dataclasses import replace

import torch
import torch.nn.functional as F

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import call_with_own_tensor, members_of
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import listed

from ._support import (
    POINT,
    all_reduce_elements,
    drawn,
    in_group,
    in_place,
    legible,
    own_inputs,
    uneven,
)


def _halving_doubling_cases(rng: random.Random) -> list[Case]:
    return [
        legible(4, 8),
        drawn(rng, 2, 6),
        drawn(rng, 4, 64, torch.float64),
        drawn(
            rng,
            1,
            5,
            clue=Clue("log2(1) = 0: one rank exchanges nothing", "rank of the current process"),
        ),
        drawn(rng, 4, (2, 5), clue=uneven(10, 4)),
        drawn(rng, 16, 16, torch.float64),
        drawn(rng, 4, (), torch.int64, clue=POINT),
        drawn(rng, 4, 1003, torch.bfloat16, clue=uneven(1003, 4)),
        in_group(rng, 4, (1, 3), 12),
    ]


def _judge_halving_doubling(case: Case, observation: Observation) -> Finding | None:
    members = list(own_inputs(case))
    n, size = len(members), case.data["inputs"][0].element_size()
    rounds = n.bit_length() - 1
    if finding := in_place(case, observation, lambda me: _lookalikes(case, me)):
        return _with_gaps(finding, members, observation)
    least, most = all_reduce_elements(case)
    for me, rank in enumerate(members):
        partners = {members[me ^ 2**k] for k in range(rounds)}
        rule = "halving, then doubling, sends 2(n-1)/n of the (padded) tensor in all"
        more = "Halve what you exchange in each round"
        finding = traffic_limits.sent(observation, rank, least * size, most * size, rule, more)
        if not finding and case.data["inputs"][0].numel() >= n:
            count = f"log2(n) exchanges halve and log2(n) double, here {rounds} and {rounds}"
            finding = traffic_limits.messages(observation, rank, 2 * rounds, count)
        finding = finding or traffic_limits.peers(
            observation, rank, partners, "the partners of rank r are r XOR 1, 2, 4, ..."
        )
        if finding:
            return finding
    return None


def _lookalikes(case: Case, me: int) -> dict[str, torch.Tensor]:
    """What comes if each sends the half that it keeps, where its partner keeps the other one."""
    inputs = case.data["inputs"]
    n, numel, shape = len(inputs), inputs[0].numel(), inputs[0].shape
    rows = [F.pad(each.reshape(-1), (0, -numel % n)).view(n, -1).clone() for each in inputs]
    distances = [2**k for k in range(n.bit_length() - 1)]

    def half(rank: int, d: int) -> slice:
        return slice(rank // d * d, rank // d * d + d)

    for d in reversed(distances):
        kept = [rows[rank][half(rank, d)].clone() for rank in range(n)]
        for rank in range(n):
            rows[rank][half(rank, d)] += kept[rank ^ d]
    for d in distances:
        held = [rows[rank][half(rank, d)].clone() for rank in range(n)]
        for rank in range(n):
            rows[rank][half(rank ^ d, d)] = held[rank ^ d]
    why = "what comes if each rank sends the half that it keeps: send the half that you give up"
    return {why: rows[me].reshape(-1)[:numel].view(shape)} if n > 1 else {}


def _with_gaps(finding: Finding, members: list[int], observation: Observation) -> Finding:
    """If partners at some distances were left out, that is why."""
    n, matrix = len(members), observation.trace.traffic().matrix
    distances = [2**k for k in range(n.bit_length() - 1)]
    met = [d for d in distances if any(matrix[members[r]][members[r ^ d]] for r in range(n))]
    if not met or met == distances:
        return finding
    left_out = listed(str(d) for d in distances if d not in met)
    gaps = (
        f"nothing was sent at distance {left_out}, and {n} ranks need the distances "
        f"{listed(map(str, distances))}"
    )
    return replace(finding, likely=f"{gaps} ({finding.likely})")


EXERCISE = Exercise(
    module=__name__,
    signature="(tensor, group=None)",
    cases=_halving_doubling_cases,
    on_rank=call_with_own_tensor,
    own={"inputs": by_rank},
    groups=members_of,
    judge=_judge_halving_doubling,
    hints=(
        """
        Keep a range [low, high) of the padded tensor that you answer for. Each round of the
        first phase halves it: you and your partner split it, each sends the other the half that
        it gives up, and adds what arrives to the half that it keeps. The second phase runs the
        rounds backwards, without adding.
        """,
        """
        The distance d goes n/2, n/4, ..., 1, and the partner is rank ^ d. Of the two, the rank
        whose bit is not set (rank & d == 0) keeps the lower half. Both send and receive in
        every round, so start the send with isend. Remember the ranges that you gave up: on the
        way back they return filled.
        """,
        """
        Halving, in each round: split the range at its middle; isend the half you give up; recv
        into a scratch tensor of half the size; wait; add it to the half you keep; append the
        half you gave up to a list. Doubling, for the same distances backwards: isend the range
        you hold; recv into the range popped from the list; wait; the two together are the range
        you hold now.
        """,
    ),
    passed="2 log2(n) messages per rank, and no byte more than the ring",
    contract=Contract(
        in_place="tensor",
        takes="any shape and size; n is a power of two",
        dtypes=("float32", "float64", "bfloat16", "int64"),
        transposed=True,
        groups=True,
        allowed=POINT_TO_POINT,
        sends="each rank sends 2(n-1)/n of the tensor, which may be padded, in 2 log2(n) "
        "messages, to the ranks r XOR 1, 2, 4, ...",
    ),
    points=2,
)
