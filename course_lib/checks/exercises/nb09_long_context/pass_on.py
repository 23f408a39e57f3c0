"""One step of a ring: every rank hands its tensors to the next.

pass_on(tensors) -> list
    Sends each tensor to rank + 1 and returns new ones of the same shapes and dtypes, with what rank
    - 1 sent, in the same order. All ranks at once, and none may wait for ever.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.case_inputs import spread
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 3, [(2,)]),
        _case(rng, 2, [(2, 3), (2, 3)]),
        _case(rng, 4, [(3,), (2, 2), (rng.randint(4, 9),)]),
        _case(rng, 3, [(1, 2, 4, 3)] * 2, torch.float64),
        _case(rng, 1, [(2,)]),
    ]


def _case(rng: random.Random, ranks: int, shapes: list, dtype: torch.dtype = torch.float32) -> Case:
    columns = [spread(rng, ranks, shape, dtype) for shape in shapes]
    inputs = [[column[rank] for column in columns] for rank in range(ranks)]
    label = f"{counted(len(shapes), 'tensor')} on {counted(ranks, 'rank')}"
    return Case(ranks, label, {"inputs": inputs})


def _on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer([tensor.clone() for tensor in case.data["inputs"][dist.get_rank()]]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    inputs, n = case.data["inputs"], case.world_size
    for rank, got in enumerate(observation.values):
        wanted = inputs[(rank - 1) % n]
        if not isinstance(got, list | tuple) or len(got) != len(wanted):
            expected = f"a list of {counted(len(wanted), 'tensor')}"
            had = f"{len(got)} of them" if isinstance(got, list | tuple) else kind_of(got)
            return Finding(f"{expected} is expected, as many as came in", rank, "", expected, had)
        for index, tensor in enumerate(wanted):
            looks = {
                "your own: nothing has arrived": inputs[rank][index],
                "what the rank behind you has: send to rank + 1, receive from rank - 1": (
                    inputs[(rank + 1) % n][index]
                ),
            }
            looks |= {
                f"tensor {other} of the rank before you, where number {index} is expected": one
                for other, one in enumerate(wanted)
                if other != index and one.shape == tensor.shape
            }
            fitting = {why: t for why, t in looks.items() if not torch.equal(t, tensor)}
            if finding := compare_tensors.mismatch(
                got[index], reference.moved(tensor), rank, fitting
            ):
                return finding
        nbytes = sum(t.nbytes for t in inputs[rank]) if n > 1 else 0
        rule = "each tensor once, to the next rank"
        following = [(rank + 1) % n]
        finding = traffic_limits.sent(observation, rank, nbytes, nbytes, rule)
        finding = finding or traffic_limits.peers(observation, rank, following, f"a ring: {rule}")
        if finding:
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(tensors)",
    cases=_cases,
    on_rank=_on_rank,
    own={"inputs": by_rank},
    judge=_judge,
    hints=(
        """
        If every rank calls dist.send first, each waits until somebody receives, and nobody does.
        Which call starts a send and comes back at once?
        """,
        """
        isend every tensor to (rank + 1) % n, recv into torch.empty_like of each from (rank - 1) %
        n, then wait for the sends: a buffer must stay as it is until then. On one rank there is
        nobody to send to.
        """,
        """
        if n == 1: return list(tensors). sending = [dist.isend(t, dst=(rank + 1) % n) for t in
        tensors]; arrived = [torch.empty_like(t) for t in tensors]; for t in arrived: dist.recv(t,
        src=(rank - 1) % n); for work in sending: work.wait(); return arrived.
        """,
    ),
    passed="every tensor goes one rank further, and nobody waits for ever",
    contract=Contract(
        anew=True,
        takes="a list of contiguous tensors, of the same shapes on every rank",
        allowed=POINT_TO_POINT,
        sends="each tensor goes once to the next rank of the ring, in as many messages as you "
        "like; one rank alone sends nothing",
    ),
)
