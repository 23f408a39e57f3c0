"""All-to-all in autograd's graph: backward, the gradients go the same way back.

exchange_with_gradient(rows, sent, received) -> the rows that come in, rank 0's first
    rows (sum(sent), C), sorted by the rank that they are for. sent and received are lists of n
    whole numbers: how many rows go to each rank, and how many come from it.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD, FORWARD
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted

from ._spans import sent_in

_WIDTH = 3


def _cases(rng: random.Random) -> list[Case]:
    drawn = [[rng.randint(0, 3) for _ in range(3)] for _ in range(3)]
    drawn[0][2], drawn[2][0] = 4, 1
    tables = [[[1, 3], [2, 1]], drawn, [[0, 0], [rng.randint(1, 4), 0]], [[3]]]
    return [_case(rng, table) for table in tables]


def _case(rng: random.Random, table: list[list[int]]) -> Case:
    n = len(table)
    rows = [normal(rng, (sum(table[r]), _WIDTH))[0] for r in range(n)]
    weights = [normal(rng, (sum(t[r] for t in table), _WIDTH))[0] for r in range(n)]
    label = f"rows of {_WIDTH} over {counted(n, 'rank')}: {table}"
    return Case(
        n,
        label,
        {"table": table, "rows": rows, "weights": weights},
        "backward, rows go the other way: what was received is sent, what was sent comes back",
    )


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, table = dist.get_rank(), case.data["table"]
    sent, received = table[rank], [row[rank] for row in table]
    rows, weights = case.data["rows"][rank].clone().requires_grad_(), case.data["weights"][rank]
    with record_function(FORWARD):
        output = answer(rows, list(sent), list(received))
    graph = isinstance(output, torch.Tensor) and output.requires_grad
    seen: dict[str, Any] = {"output": plain(output), "gradient": None, "graph": graph}
    # As the next layer is called before this one's backward: with other sizes.
    other = torch.cat([part.repeat(2, 1) for part in (rows.detach() / -2).split(sent)])
    seen["another"] = plain(answer(other, [2 * s for s in sent], [2 * r for r in received]))
    if isinstance(output, torch.Tensor) and output.requires_grad and output.shape == weights.shape:
        with record_function(BACKWARD):
            # Through a transposition, so that the gradient which comes is not contiguous.
            (output.T * weights.T.contiguous()).sum().backward()
        seen["gradient"] = plain(rows.grad)
    return seen


def _judge(case: Case, observation: Observation) -> Finding | None:
    table, n = case.data["table"], case.world_size
    rows, weights = case.data["rows"], case.data["weights"]

    def there(r: int, s: int) -> torch.Tensor:
        return rows[r].split(table[r])[s]

    def back(r: int, s: int) -> torch.Tensor:
        """What rank s says of the rows that rank r sent it."""
        return weights[s].split([t[s] for t in table])[r]

    for rank, seen in enumerate(observation.values):
        parts = [there(r, rank) for r in range(n)]
        looks = {
            "this rank's own rows": rows[rank],
            "the right rows, from the last rank to the first": torch.cat(parts[::-1]),
        }
        if finding := compare_tensors.computed(seen["output"], torch.cat(parts), rank, looks):
            return finding
    for rank, seen in enumerate(observation.values):
        if finding := _wrong_gradient(seen, [back(rank, s) for s in range(n)], rank):
            return finding
    return _bytes(case, observation)


def _wrong_gradient(seen: dict[str, Any], parts: list[torch.Tensor], rank: int) -> Finding | None:
    title, got = "the rows are right, their gradient is not", seen["gradient"]
    if got is None and seen["graph"]:
        return Finding(
            f"{title}: there is none, though the result requires grad. Does backward return None "
            "for rows, or was their graph cut off before, as by detach()?",
            rank,
            got="None",
        )
    if got is None:
        return Finding(
            f"{title}: there is none. A plain dist collective is not part of autograd's graph; a "
            "torch.autograd.Function is, with a backward of its own",
            rank,
            got="None",
        )
    looks = {
        "the gradients from the last rank to the first": torch.cat(parts[::-1]),
        "n times too much: nothing is added up here, each row has gone to one rank": (
            torch.cat(parts) * len(parts)
        ),
    }
    several = looks if len(parts) > 1 else {}
    return compare_tensors.titled(
        title, compare_tensors.computed(got, torch.cat(parts), rank, several)
    )


def _bytes(case: Case, observation: Observation) -> Finding | None:
    table, n = case.data["table"], case.world_size
    for rank in range(n):
        for phase, direction, counts in (
            (FORWARD, "forward", table[rank]),
            (BACKWARD, "backward", [row[rank] for row in table]),
        ):
            wanted = 8 * _WIDTH * (sum(counts) - counts[rank])
            found = sent_in(observation, rank, phase)
            if found != wanted:
                return Finding(
                    f"the numbers are right, but not what travels {direction}: each row once, to "
                    "the rank that it is for",
                    rank,
                    expected=f"{wanted} bytes sent",
                    got=f"{found} bytes sent",
                )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(rows, sent, received)",
    cases=_cases,
    on_rank=_on_rank,
    own={"rows": by_rank, "weights": by_rank},
    judge=_judge,
    hints=(
        """
        Every row has gone to one rank. Who knows the gradient of the row that you sent there, and
        which way does it have to go?
        """,
        """
        Write a torch.autograd.Function whose forward calls dist.all_to_all_single. Its backward
        calls the same with the two lists swapped, on the gradient (contiguous), and
        returns None for whatever is no tensor.
        """,
        """
        forward(ctx, rows, sent, received): ctx.sizes = sent, received; into
        rows.new_empty(sum(received), rows.shape[1]) all_to_all_single with received, sent.
        backward(ctx, gradient): the same from gradient.contiguous() into a tensor of sum(sent) rows
        with sent, received; return that, None, None.
        """,
    ),
    passed="rows go there, gradients come back, each once",
    contract=Contract(
        anew=True,
        takes="rows (sum(sent), C), or none at all",
        allowed=frozenset({"all_to_all"}),
        sends="forward the rows travel, backward as many gradients, each to one rank",
    ),
)
