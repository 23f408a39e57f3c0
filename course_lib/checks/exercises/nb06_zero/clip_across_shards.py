"""Gradient clipping by the norm of all gradients, when each rank has only parts of some.

clip_across_shards(shards, replicated, max_norm) -> the norm before clipping
    shards: parameters of which every rank has a different part (perhaps an empty one). replicated:
    parameters that every rank has whole, with equal gradients. Gradients are scaled in place by
    max_norm / norm where norm is larger; one without gradient counts nothing.
"""

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank, each
from course_lib.checks.returned_numbers import close, number
from course_lib.text import counted, listed

_RELATIVE = 1e-5  # torch's own clipping adds 1e-6 to the norm


_LEAVING = Clue(
    "every rank must call the all-reduce, even one with empty shards or without any gradient: else "
    "the others wait for it",
    "NoneType",
    "empty",
)


_MISSING = Clue(
    "a parameter whose .grad is None counts nothing, and one after it may have a gradient",
    "NoneType",
)
_ZERO = Clue(
    "without any gradient the norm is 0, and nothing can be divided by it",
    "ZeroDivisionError",
    "empty",
)
_DIGITS = "the square of a float16 number may be more than float16 holds: add up in float32 or more"


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, [4], [2], 1.0),
        _case(rng, 4, [5, 3], [3], 1.0),
        _case(rng, 3, [6, 7], [2], 1e6),
        _case(rng, 5, [2], [], 0.5, clue=_LEAVING),
        _case(rng, 1, [4], [3], 0.5),
        _case(rng, 3, [2, 1], [], 0.25, nothing=(2,), clue=_LEAVING),
        _case(rng, 2, [3, 4], [2, 3], 0.5, missing=("shards 0", "replicated 1"), clue=_MISSING),
        _case(rng, 2, [3], [2], 0.5, missing=("shards 0", "replicated 0"), clue=_ZERO),
        _case(rng, 2, [4], [2], 0.5, dtype=torch.float16, clue=_DIGITS),
    ]


def _case(
    rng: random.Random,
    world_size: int,
    sharded: list[int],
    replicated: list[int],
    max_norm: float,
    nothing: tuple[int, ...] = (),
    missing: tuple[str, ...] = (),
    dtype: torch.dtype = torch.float64,
    clue: str = "",
) -> Case:
    """Rows are dealt out as evenly as they go.

    nothing: ranks whose shards have no gradient. missing: parameters that have none on any rank.
    """
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    size = 3.0 if max_norm < 100 else 30.0
    if dtype is torch.float16:
        size = 300.0  # whose square float16 cannot hold

    def draw(count: int) -> torch.Tensor:
        drawn = torch.randn(count, 2, generator=generator, dtype=torch.float64) * size
        return drawn.to(dtype)

    data = {
        "shards": [list(draw(rows).tensor_split(world_size)) for rows in sharded],
        "replicated": [draw(rows) for rows in replicated],
        "max_norm": max_norm,
        "nothing": nothing,
        "missing": missing,
    }
    ranks = f"{counted(world_size, 'rank')}"
    rows = " and ".join(map(str, sharded))
    label = f"{rows} rows over {ranks}, {sum(replicated)} on every rank, max_norm = {max_norm:g}"
    label += f", no gradient in {listed(missing)}" if missing else ""
    label += ", float16" if dtype is torch.float16 else ""
    return Case(world_size, label, data, clue)


_Gradients = list[torch.Tensor | None]


def _own(case: Case, rank: int) -> tuple[_Gradients, _Gradients]:
    data = case.data
    shards = [
        None if rank in data["nothing"] or f"shards {i}" in data["missing"] else parts[rank]
        for i, parts in enumerate(data["shards"])
    ]
    replicated = [
        None if f"replicated {i}" in data["missing"] else gradient
        for i, gradient in enumerate(data["replicated"])
    ]
    return shards, replicated


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank = dist.get_rank()
    shapes = [parts[rank].shape for parts in case.data["shards"]]
    dtype = case.data["shards"][0][rank].dtype
    parameters = [nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes]
    copies = [nn.Parameter(torch.ones_like(t)) for t in case.data["replicated"]]
    shards, replicated = _own(case, rank)
    for parameter, gradient in zip([*parameters, *copies], [*shards, *replicated], strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    before = [_place(p.grad) for p in (*parameters, *copies)]
    returned = answer(parameters, copies, case.data["max_norm"])
    after = [_place(p.grad) for p in (*parameters, *copies)]
    return {
        "same": before == after,
        "returned": plain(returned),
        "shards": [plain(p.grad) for p in parameters],
        "replicated": [plain(p.grad) for p in copies],
    }


def _place(gradient: torch.Tensor | None) -> tuple[int, int] | None:
    """Which object it is, and where its numbers lie."""
    return None if gradient is None else (id(gradient), gradient.data_ptr())


def _squares(tensors: _Gradients) -> float:
    return sum(float((t.double() ** 2).sum()) for t in tensors if t is not None)


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, max_norm = case.world_size, case.data["max_norm"]
    by_rank = [_squares(_own(case, rank)[0]) for rank in range(n)]
    copies = _squares(_own(case, 0)[1])
    # The norm, the factor and the product may each be rounded to the gradients' own digits.
    relative = max(_RELATIVE, 2 * torch.finfo(case.data["shards"][0][0].dtype).eps)
    norm = (sum(by_rank) + copies) ** 0.5
    for rank, seen in enumerate(observation.values):
        got = number(seen["returned"])
        if got is None or not close(got, norm, relative):
            likely = (
                "return the norm of all gradients, as it was before clipping"
                if got is None
                else _norm_cause(got, rank, by_rank, copies, max_norm)
            )
            shown = kind_of(seen["returned"]) if got is None else f"{got:.6g}"
            return Finding(likely, rank, expected=f"norm {norm:.6g}", got=shown)
    factor = min(1.0, max_norm / norm) if norm else 1.0
    for rank, seen in enumerate(observation.values):
        shards, replicated = _own(case, rank)
        for kind, gradients in (("shards", shards), ("replicated", replicated)):
            for number_, gradient in enumerate(gradients):
                if gradient is None or not gradient.numel():
                    continue
                want = gradient.double() * factor
                looks = {"the gradient as it was, not clipped": gradient} if factor < 1 else {}
                scaled = reference.computed(want, relative, scale=0, dtype=gradient.dtype)
                finding = compare_tensors.mismatch(seen[kind][number_], scaled, rank, looks)
                if finding:
                    likely = f"the gradient of {kind}[{number_}]: {finding.likely}"
                    if factor == 1:
                        likely = (
                            f"the gradients of {kind} changed, though the norm is below max_norm: "
                            "clipping never makes them longer"
                        )
                    return Finding(likely, rank, expected=finding.expected, got=finding.got)
        if not seen["same"]:
            return Finding(
                "the gradients are right, but .grad is another tensor than before: scale it in "
                "place, with mul_, since it may be a view of a larger one",
                rank,
            )
    return _traffic(case, observation)


def _norm_cause(got: float, rank: int, by_rank: list[float], copies: float, max_norm: float) -> str:
    if math.isinf(got):
        return _DIGITS
    n, square = len(by_rank), got**2
    total = sum(by_rank)
    causes = [
        (
            by_rank[rank] + copies,
            "this is the norm of what this rank has: each rank would scale by a factor of its own",
        ),
        (
            total + n * copies,
            "replicated gradients are counted once on every rank: add their squares after the "
            "all-reduce",
        ),
        (total, "the replicated gradients are left out"),
        (copies, "the shards are left out"),
        ((total + n * copies) / n, "this is an average over ranks, but squares add up"),
        (
            sum((s + copies) ** 0.5 for s in by_rank) ** 2,
            "these are the ranks' norms, added: add up squares, and take the root at the end",
        ),
        (
            (sum(s**0.5 for s in by_rank) + copies**0.5) ** 2,
            "these are the ranks' norms, added: add up squares, and take the root at the end",
        ),
        ((total + copies) ** 2, "this is the sum of squares: the root is missing"),
        (
            min(max_norm**2, total + copies),
            "this is the norm after clipping: return the one before",
        ),
    ]
    default = "the norm is the root of the sum of all squares, each element of the model once"
    return next((cause for value, cause in causes if close(square, value, 1e-4)), default)


def _traffic(case: Case, observation: Observation) -> Finding | None:
    """One number is reduced: 8 bytes, or one for each parameter."""
    most = 8 * (len(case.data["shards"]) + len(case.data["replicated"]) + 1)
    for rank in range(case.world_size):
        events = [e for e in observation.trace.of(rank) if e.op != "barrier"]
        nbytes = sum(event.nbytes for event in events)
        if nbytes > most:
            return Finding(
                "the result is right, but whole gradients went over the network: add up squares on "
                "each rank first, then one number is enough",
                rank,
                expected=f"at most {most} bytes all-reduced",
                got=f"{nbytes} bytes",
            )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(shards, replicated, max_norm)",
    cases=_cases,
    on_rank=_on_rank,
    own={"shards": each(by_rank)},
    judge=_judge,
    hints=(
        """
        The square of the norm is a sum over all elements of the model. Who can add up which part
        of it? What does everyone know without asking?
        """,
        """
        All-reduce the sum of squares of the shards, a tensor with one number, on every rank, even
        where it is zero. Add the squares of the replicated gradients after that. The root of it
        is the norm; scale all gradients if it is above max_norm.
        """,
        """
        square = torch.zeros(()).double(); add p.grad.double().square().sum() for p in shards with a
        gradient; dist.all_reduce(square); add the replicated ones; norm = square.sqrt(). if norm >
        max_norm: p.grad.mul_(max_norm / norm) for every gradient of both lists. return norm.
        """,
    ),
    passed="one norm on all ranks, every element counted once, for one number sent",
    contract=Contract(
        takes="gradients of any floating dtype, empty ones, and None; or no gradient at all",
        holds="gradients are scaled in place",
        allowed=frozenset({"all_reduce", "all_gather", "reduce_scatter"}),
    ),
    points=2,
)
