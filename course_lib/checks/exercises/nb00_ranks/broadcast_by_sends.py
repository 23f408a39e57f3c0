"""From one to all, by messages.

broadcast_by_sends(tensor, root)
    Afterwards `tensor` holds, on every rank, what it held on rank `root`. In place, as
    dist.broadcast. Whichever way it travels, every other rank receives it exactly once.
"""

import random
from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import Call, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank

from ._moving import (
    ALONE,
    POINT,
    drawn,
    legible,
    moved_wrongly,
    received_once,
    with_root,
)

_RULE = "the root has the tensor, and every other rank receives it exactly once"


_MORE = "Is something sent that nobody needs?"


def _cases(rng: random.Random) -> list[Case]:
    cases = [
        legible(3, 3),
        legible(3, 3, root=2),
        drawn(rng, 2, 5, root=1),
        drawn(rng, 1, 4, clue=ALONE),
        drawn(rng, 5, (3, 4), torch.float64, root=rng.randrange(1, 5)),
        drawn(rng, 3, (), torch.int64, root=2, clue=POINT),
    ]
    return [with_root(case) for case in cases]


def _on_rank(answer: Callable, case: Case) -> Call:
    tensor = case.data["inputs"][dist.get_rank()].clone()
    returned = answer(tensor, case.data["root"])
    return Call(plain(returned), plain(tensor), shares_memory=False)


def _judge(case: Case, observation: Observation) -> Finding | None:
    root = case.data["root"]
    for rank, call in enumerate(observation.values):
        if finding := moved_wrongly(call.argument, root, rank, case):
            if isinstance(call.returned, torch.Tensor) and torch.equal(
                call.returned, case.data["inputs"][root]
            ):
                likely = (
                    "what you returned is right, but the tensor that came in does not hold it: "
                    "receive into that one, as dist.broadcast does"
                )
                return Finding(likely, rank, expected=finding.expected, got=finding.got)
            return finding
    for rank in range(case.world_size):
        amount = 0 if rank == root else 1
        if finding := received_once(rank, amount, _RULE, _MORE, observation, case):
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(tensor, root)",
    cases=_cases,
    on_rank=_on_rank,
    own={"inputs": by_rank},
    judge=_judge,
    hints=(
        """
        Two kinds of ranks: the root, which sends, and the others, which receive. What does each of
        the two do, and how often?
        """,
        """
        The root goes through all ranks but itself and sends to each. Every other rank makes one
        dist.recv from the root, into the very tensor it was given: then there is nothing to return.
        """,
        """
        if the rank is root: for each other in range(dist.get_world_size()), when it is not the
        root: dist.send(tensor, dst=other). Otherwise: dist.recv(tensor, src=root).
        """,
    ),
    passed="every rank but the root receives the tensor exactly once",
    contract=Contract(
        in_place="tensor",
        returned=False,
        takes="any shape, even of a single number; any root",
        allowed=POINT_TO_POINT,
        separate=True,
        sends="every rank but the root receives the tensor once",
    ),
)
