"""From one to each its own, by messages.

scatter_by_sends(output, pieces, root)
    On rank `root`, `pieces` is a list of n tensors, one for each rank; elsewhere it is None.
    Afterwards `output` holds, on rank r, pieces[r]. In place, as dist.scatter. Each piece travels
    once, from the root to its owner, and nothing else does.
"""

import random
from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import Call, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.format_tensor import glimpse_inputs
from course_lib.checks.rank_inputs import only

from ._moving import (
    ALONE,
    POINT,
    drawn,
    legible,
    nbytes,
    received_once,
    with_root,
)

_EMPTY = -7  # what an output holds before


def _cases(rng: random.Random) -> list[Case]:
    cases = [
        legible(3, 3),
        legible(3, 3, root=2),
        drawn(rng, 2, (2, 3), root=1),
        drawn(rng, 1, 4, clue=ALONE),
        drawn(rng, 5, 6, torch.float64, root=rng.randrange(1, 5)),
        drawn(rng, 3, (), torch.int64, root=1, clue=POINT),
    ]
    return [with_root(case) for case in cases]


def _on_rank(answer: Callable, case: Case) -> Call:
    rank, root = dist.get_rank(), case.data["root"]
    output = torch.full_like(case.data["inputs"][rank], _EMPTY)
    pieces = [piece.clone() for piece in case.data["inputs"]] if rank == root else None
    returned = answer(output, pieces, root)
    return Call(plain(returned), plain(output), shares_memory=False)


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, root = case.world_size, case.data["root"]
    for rank, call in enumerate(observation.values):
        if finding := _wrong_piece(call, rank, case):
            return finding
    for rank in range(n):
        most = (n - 1) * nbytes(case) if rank == root else 0
        rule = "the root sends each piece to its owner, and nobody else has anything to send"
        finding = traffic_limits.sent(
            observation, rank, most, most, rule, "Does anyone need more than its own piece?"
        ) or received_once(rank, int(rank != root), rule, "", observation, case)
        if finding:
            return finding
    return None


def _wrong_piece(call: Call, rank: int, case: Case) -> Finding | None:
    pieces, root = case.data["inputs"], case.data["root"]
    before = torch.full_like(pieces[rank], _EMPTY)
    untouched = "what was in `output` before: nothing has been written into it"
    if rank == root:
        untouched += ". The root has a piece of its own, which needs no message: output.copy_(...)"
    others = {f"piece {i}, which belongs to rank {i}": p for i, p in enumerate(pieces) if i != rank}
    others["the piece added to what was in `output` before, which counts for nothing"] = (
        pieces[rank] + before
    )
    want = reference.moved(pieces[rank])
    finding = compare_tensors.mismatch(call.argument, want, rank, {untouched: before, **others})
    if finding is None:
        return None
    likely = finding.likely
    if isinstance(call.returned, torch.Tensor) and torch.equal(call.returned, pieces[rank]):
        likely = (
            "what you returned is right, but `output` does not hold it: receive into output, and "
            "on the root copy into it"
        )
    shown = glimpse_inputs(dict(enumerate(pieces))).replace("rank", "piece")
    return Finding(likely, rank, shown, finding.expected, finding.got)


EXERCISE = Exercise(
    module=__name__,
    signature="(output, pieces, root)",
    cases=_cases,
    on_rank=_on_rank,
    own={"inputs": only(lambda case: case.data["root"])},
    judge=_judge,
    hints=(
        """
        Compare it with your broadcast. The same messages, from the root to every other rank. What
        is different about what is in them?
        """,
        """
        Rank r only ever needs pieces[r], so the root sends just that. Only the root may look into
        pieces: elsewhere it is None. And the root's own piece?
        """,
        """
        On the root, for each rank and piece in enumerate(pieces): if it is the root's own,
        output.copy_(piece), otherwise dist.send(piece, dst=rank). On every other rank: one
        dist.recv(output, src=root).
        """,
    ),
    passed="each piece travels once, from the root to its owner",
    contract=Contract(
        in_place="output",
        returned=False,
        takes="any shape, even of a single number; any root",
        allowed=POINT_TO_POINT,
        separate=True,
        sends="each piece travels once, from the root to its owner",
    ),
)
