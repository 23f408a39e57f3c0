"""The assignment: buckets in the order in which gradients are really ready.

buckets_by_ready_time(ready, sizes, bucket_bytes) -> list of buckets, each a list of indices
    ready[i]: when this rank had the gradient of parameter i in a recorded backward, or None if it
    never came. An all-reduce begins when its last rank has come, so what counts is the latest rank;
    a parameter that one rank never had comes last. Neighbours in that order share a bucket while
    they fit into bucket_bytes, and a larger one gets a bucket of its own. All
    ranks return the same.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(
            "ranks that are slow in different places",
            [[1, 4, 2, 8, 5], [6, 3, 9, 1, 2], [2, 10, 3, 7, 7]],
            [8] * 5,
            16,
        ),
        _case("a chain of layers", [[6, 5, 4, 3, 2, 1]] * 2, [4] * 6, 8),
        _case(
            "parameters that are not registered in the order of their use",
            [[3, 6, 1, 5, 2, 4]] * 2,
            [4] * 6,
            12,
        ),
        _case(
            "a parameter that rank 1 never has, and one that nobody has",
            [[4, 3, 2, None, 1], [4, None, 3, None, 2]],
            [4] * 5,
            8,
        ),
        _case("one rank", [[3, 1, 2]], [4, 4, 4], 4),
        *[_drawn(rng, n) for n in (3, 4)],
    ]


def _case(label: str, ready: list[list], sizes: list[int], room: int) -> Case:
    n = len(ready)
    text = f"{label}: {len(sizes)} parameters on {counted(n, 'rank')}, buckets of {room} bytes"
    return Case(n, text, {"ready": ready, "sizes": sizes, "room": room})


def _drawn(rng: random.Random, n: int) -> Case:
    count = rng.randint(12, 20)
    ready = [[rng.uniform(0, 1) for _ in range(count)] for _ in range(n)]
    sizes = [4 * rng.randint(1, 60) for _ in range(count)]
    return _case("drawn at random", ready, sizes, 200)


def _on_rank(answer: Callable, case: Case) -> Any:
    ready = case.data["ready"][dist.get_rank()]
    found = answer(
        [None if t is None else float(t) for t in ready],
        list(case.data["sizes"]),
        case.data["room"],
    )
    if isinstance(found, list | tuple):
        found = [b.tolist() if isinstance(b, torch.Tensor) else b for b in found]
    return plain(found)


def latest(case: Case) -> list[float]:
    """When the last rank had each gradient."""
    by_parameter = zip(*case.data["ready"], strict=True)
    return [max(math.inf if t is None else float(t) for t in times) for times in by_parameter]


def pack(order: list[int], sizes: list[int], room: int) -> list[list[int]]:
    buckets: list[list[int]] = []
    filled = 0
    for index in order:
        if not buckets or filled + sizes[index] > room:
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += sizes[index]
    return buckets


def _judge(case: Case, observation: Observation) -> Finding | None:
    answers = observation.values
    for rank, found in enumerate(answers):
        if _holds_tensors(found):
            likely = "lists of numbers are expected, and these are tensors: tolist() makes numbers"
            return Finding(likely, rank, got=f"{found}")
        if not isinstance(found, list | tuple) or not all(
            isinstance(b, list | tuple) and all(type(i) is int for i in b) for b in found
        ):
            return Finding("a list of lists of indices is expected", rank, got=kind_of(found))
    for rank, found in enumerate(answers):
        if [list(b) for b in found] != [list(b) for b in answers[0]]:
            return Finding(
                f"rank {rank} and rank 0 have different buckets, so they would add up different "
                "gradients: each rank has clocks of its own, and all must agree on one order",
                rank,
                expected=f"as on rank 0: {answers[0]}",
                got=f"{found}",
            )
    return _complete(case, answers[0]) or _ordered(case, answers[0])


def _holds_tensors(found: Any) -> bool:
    buckets = found if isinstance(found, list | tuple) else []
    return any(
        isinstance(i, torch.Tensor) for b in buckets if isinstance(b, list | tuple) for i in b
    )


def _complete(case: Case, buckets: list) -> Finding | None:
    sizes, room = case.data["sizes"], case.data["room"]
    counts = Counter(index for bucket in buckets for index in bucket)
    if missing := [i for i in range(len(sizes)) if not counts[i]]:
        never = latest(case)[missing[0]] == math.inf
        return Finding(
            f"parameter {missing[0]} is in no bucket"
            + (": never ready on some rank does not mean never ready; it comes last" * never),
            0,
            got=f"{buckets}",
        )
    if any(count > 1 for count in counts.values()) or len(counts) != len(sizes):
        return Finding("an index is there twice, or belongs to no parameter", 0, got=f"{buckets}")
    for bucket in buckets:
        if len(bucket) > 1 and sum(sizes[i] for i in bucket) > room:
            return Finding(
                "a bucket of several parameters is larger than bucket_bytes",
                0,
                expected=f"at most {room} bytes",
                got=f"{sum(sizes[i] for i in bucket)} bytes in {list(bucket)}",
            )
    return None


def _ordered(case: Case, buckets: list) -> Finding | None:
    sizes, room, times = case.data["sizes"], case.data["room"], latest(case)
    flat = [index for bucket in buckets for index in bucket]
    in_order = torch.tensor([times[index] for index in flat])  # float32: its digits are enough
    if not torch.equal(in_order, in_order.sort().values):
        return Finding(
            _order_cause(case, flat),
            0,
            input=_table(case),
            expected=f"{sorted(range(len(sizes)), key=lambda i: (times[i], i))}",
            got=f"{flat}",
        )
    if not all(buckets):
        return Finding("there is a bucket with nothing in it", 0, got=f"{buckets}")
    want = pack(flat, sizes, room)
    if len(buckets) > len(want):
        return Finding(
            "the order is right, but a bucket has room for the next parameter, and each all-reduce "
            "costs a latency",
            0,
            expected=f"{want}",
            got=f"{buckets}",
        )
    if any(not bucket for bucket in buckets):
        return Finding("an empty bucket", 0, got=f"{buckets}")
    return None


def _order_cause(case: Case, flat: list[int]) -> str:
    ready, times = case.data["ready"], latest(case)
    count = len(times)
    filled = [[math.inf if t is None else float(t) for t in row] for row in ready]
    first = [min(column) for column in zip(*filled, strict=True)]
    total = [sum(column) for column in zip(*filled, strict=True)]

    def by(values: list[float]) -> bool:
        ordered = [values[i] for i in flat]
        return ordered == sorted(ordered)

    if flat == list(reversed(range(count))):
        return "this is the reverse of the list, a good guess before anything was recorded"
    if by([-t if t < math.inf else -math.inf for t in times]) or by([-t for t in times]):
        return "the order is reversed: what is ready first leaves first"
    if by(filled[0]):
        return (
            "this is the order of rank 0's clock; an all-reduce begins when all ranks have come, "
            "so what counts is the latest time of all ranks (dist.ReduceOp.MAX)"
        )
    if by(first):
        return "this is the order by the earliest rank; the all-reduce waits for the latest"
    if by(total):
        return "this is the order by the average over ranks; the all-reduce waits for the latest"
    zeros = [
        max(-1.0 if t == math.inf else t for t in column) for column in zip(*filled, strict=True)
    ]
    if by(zeros):
        return "a parameter that a rank never had counts as early here; it comes last"
    return "this is not the order in which the last rank had the gradients"


def _table(case: Case) -> str:
    def shown(time: float | None) -> str:
        return "never" if time is None else f"{time:.3g}"

    if len(case.data["sizes"]) > 6:
        return ""
    return "\n".join(
        f"rank {rank} ready: {', '.join(map(shown, row))}"
        for rank, row in enumerate(case.data["ready"])
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(ready, sizes, bucket_bytes)",
    cases=_cases,
    on_rank=_on_rank,
    own={"ready": by_rank},
    judge=_judge,
    hints=(
        """
        First make the ranks agree on one time for each parameter. Only then sort, and only then
        fill buckets. Which of the ranks' times is the one at which an all-reduce could begin?
        """,
        """
        times = torch.tensor(...), with math.inf for None, and dist.all_reduce(times,
        op=dist.ReduceOp.MAX). Sort the indices by these times: sorted(range(n), key=...). Then the
        loop that you know from fusion.
        """,
        """
        order = sorted(range(len(sizes)), key=times.tolist().__getitem__). For each index: begin a
        new bucket if there is none or if the bytes of the bucket and of this one exceed
        bucket_bytes; append. Use float64, so that no two times become equal by rounding.
        """,
    ),
    passed="all ranks agree, and what is ready first leaves first",
    contract=Contract(
        gives="every rank returns the same buckets, in whatever way the ranks agree",
    ),
    points=2,
)
