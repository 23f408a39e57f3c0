"""Tensor fusion: many small all-reduces become few large ones (Horovod, Sergeev & Del Balso 2018).

fused_all_reduce(tensors, buffer_bytes) -> tensors
    every tensor is summed over all ranks, in place. In the order of the list, neighbours of one
    dtype share a flat buffer while they fit into `buffer_bytes`, and each buffer is all-reduced
    at once. A tensor larger than that gets a buffer of its own.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import case_inputs, compare_tensors, reference
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.format_tensor import glimpse_inputs
from course_lib.checks.rank_inputs import by_rank, each
from course_lib.text import counted

# Per tensor: shape and dtype; a shape marked "transposed" arrives as the .t() of its reverse.
_F32, _F64, _I64, _BF16 = torch.float32, torch.float64, torch.int64, torch.bfloat16


def _cases(rng: random.Random) -> list[Case]:
    vectors: list[tuple[int, ...]] = [(rng.randint(1, 120),) for _ in range(30)]
    return [
        _case(rng, 2, 24, [(2,), (3,), (1,)], "three small tensors, a buffer for all of them"),
        _case(rng, 3, 32, [(4,)] * 5, "five tensors of 16 bytes, a buffer of 32"),
        _case(
            rng,
            2,
            64,
            [(2,), (100,), (2,), (3,)],
            "a tensor of 400 bytes among small ones, a buffer of 64",
            clue="a tensor larger than the buffer is reduced alone, in a buffer of its own size",
        ),
        _case(
            rng,
            3,
            4096,
            [(3,), (2,), (2,), (4,), (1,)],
            "float32, float32, float64, int64 and float32 in one list",
            dtypes=[_F32, _F32, _F64, _I64, _F32],
            clue=Clue(
                "torch.cat makes one dtype of several: begin a new buffer where it changes", "dtype"
            ),
        ),
        _case(
            rng,
            2,
            2**20,
            [(), (2, 3), (4, 3), (5,)],
            "a scalar, a matrix, a transposed matrix and a vector",
            transposed=2,
            clue=Clue(
                "a transposed gradient is not contiguous: view(-1) fails, and reshape(-1) copies, "
                "so write back with tensor.copy_(part.view(tensor.shape))",
                "view",
            ),
        ),
        _case(
            rng,
            2,
            48,
            [(3,), (3,), (5,), (12,), (10,), (2,)],
            "float64 and bfloat16 in a buffer of 48 bytes",
            dtypes=[_F64, _F64, _F64, _BF16, _BF16, _BF16],
            clue="a buffer is full by bytes, not every element has 4 of them",
        ),
        _case(
            rng,
            2,
            64,
            [],
            "an empty list",
            clue=Clue("with nothing to reduce there is no buffer", "empty", "IndexError"),
        ),
        _case(rng, 1, 16, [(2,), (2,), (2,)], "three tensors on one rank"),
        _case(rng, 4, 1000, vectors, "30 tensors of 4 to 480 bytes, a buffer of 1000"),
    ]


def _case(
    rng: random.Random,
    world_size: int,
    buffer_bytes: int,
    shapes: list[tuple[int, ...]],
    label: str,
    *,
    dtypes: list[torch.dtype] | None = None,
    transposed: int | None = None,
    clue: str = "",
) -> Case:
    dtypes = dtypes or [_F32] * len(shapes)
    data = {
        "tensors": [  # by tensor, then by rank
            case_inputs.spread(rng, world_size, shape, dtype)
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ],
        "buffer_bytes": buffer_bytes,
        "transposed": transposed,
    }
    ranks = f"{counted(world_size, 'rank')}"
    return Case(world_size, f"{label}, on {ranks}", data, clue)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    tensors = [by_rank[dist.get_rank()].clone() for by_rank in case.data["tensors"]]
    index = case.data["transposed"]
    if index is not None:
        tensors[index] = tensors[index].t().contiguous().t()
    returned = answer(tensors, case.data["buffer_bytes"])
    return {"returned": plain(returned), "tensors": plain(tensors)}


def _judge(case: Case, observation: Observation) -> Finding | None:
    return _values(case, observation) or _calls(case, observation) or _replicas(case, observation)


def _values(case: Case, observation: Observation) -> Finding | None:
    for rank in range(case.world_size):
        seen = observation.values[rank]
        for index, tensors in enumerate(case.data["tensors"]):
            own = dict(enumerate(tensors))
            if finding := compare_tensors.mismatch(
                seen["tensors"][index], reference.total(own), rank
            ):
                likely = f"tensor {index} of the list: {finding.likely}"
                if _is_returned(seen["returned"], index, reference.total(own), rank):
                    likely = (
                        f"tensor {index} of the list that you returned is right, and the tensor "
                        "that was passed in does not hold it: write into that, "
                        "tensor.copy_(part.view(tensor.shape))"
                    )
                return replace(finding, likely=likely, input=glimpse_inputs(own))
        if finding := _returned(seen["returned"], len(case.data["tensors"]), rank):
            return finding
    return None


def _is_returned(returned: Any, index: int, want: reference.Reference, rank: int) -> bool:
    """Whether the right sum is in the list that came back."""
    return (
        isinstance(returned, list | tuple)
        and len(returned) > index
        and compare_tensors.mismatch(returned[index], want, rank) is None
    )


def _returned(returned: Any, count: int, rank: int) -> Finding | None:
    if returned is None:
        likely = "the tensors are right, but your function returned nothing: `return tensors`"
        return Finding(likely, rank)
    if not isinstance(returned, list | tuple) or len(returned) != count:
        likely = "the tensors are right, but what you returned is not the list: `return tensors`"
        expected = f"a list of {count} tensors"
        return Finding(likely, rank, expected=expected, got=kind_of(returned))
    return None


def _calls(case: Case, observation: Observation) -> Finding | None:
    """Few enough all-reduces, none larger than the buffer, no byte too many."""
    sizes = [(by_rank[0].nbytes, by_rank[0].dtype) for by_rank in case.data["tensors"]]
    room = case.data["buffer_bytes"]
    most = packed(sizes, room)
    alone = {nbytes for nbytes, _ in sizes if nbytes > room}
    for rank in range(case.world_size):
        reduced = [event.nbytes for event in observation.trace.of(rank)]
        if len(reduced) > most:
            return Finding(
                f"the sums are right, but this rank called all_reduce {len(reduced)} times where "
                f"{most} are enough: fill each buffer while the next tensor fits",
                rank,
                expected=f"at most {most} all-reduces",
                got=f"{len(reduced)}, of {_some(reduced)} bytes",
            )
        for nbytes in reduced:
            if nbytes > room and nbytes not in alone:
                return Finding(
                    "the sums are right, but a buffer is larger than buffer_bytes, which bounds "
                    "the memory that fusion costs",
                    rank,
                    expected=f"at most {room} bytes in one all-reduce",
                    got=f"{nbytes} bytes",
                )
        if case.world_size > 1 and sum(reduced) != sum(nbytes for nbytes, _ in sizes):
            return Finding(
                "the sums are right, but the bytes that were reduced are not those of the tensors: "
                "is a buffer sent with unused space, or in a wider dtype?",
                rank,
                expected=f"{sum(nbytes for nbytes, _ in sizes)} bytes in all",
                got=f"{sum(reduced)} bytes",
            )
    return None


def packed(sizes: list[tuple[int, torch.dtype]], room: int) -> int:
    """Buffers that packing in order takes, for tensors of these bytes and dtypes."""
    buffers, filled, kind = 0, 0, None
    for nbytes, dtype in sizes:
        if not buffers or dtype != kind or filled + nbytes > room:
            buffers, filled, kind = buffers + 1, 0, dtype
        filled += nbytes
    return buffers


def _replicas(case: Case, observation: Observation) -> Finding | None:
    for index in range(len(case.data["tensors"])):
        held = {rank: observation.values[rank]["tensors"][index] for rank in range(case.world_size)}
        if finding := compare_tensors.ranks_differ(held):
            return finding
    return None


def _some(values: list[int]) -> str:
    return ", ".join(map(str, values[:5])) + (", ..." if len(values) > 5 else "")


EXERCISE = Exercise(
    module=__name__,
    signature="(tensors, buffer_bytes)",
    cases=_cases,
    on_rank=_on_rank,
    own={"tensors": each(by_rank)},
    judge=_judge,
    hints=(
        """
        First decide which tensors go together, without sending anything: a list of lists. Then
        treat each of these groups alike: pack, all-reduce, unpack.
        """,
        """
        A new group begins with the first tensor, where the dtype changes, and where the bytes
        of the group and of the next tensor together exceed buffer_bytes. A tensor larger than
        the buffer gets a group of its own by the same rule.
        """,
        """
        torch.cat of the flattened tensors (reshape(-1)) is the buffer. After the all-reduce,
        split it into parts of numel elements each, and copy every part back with
        tensor.copy_(part.view(tensor.shape)): that also works for a transposed tensor.
        tensor.nbytes is a tensor's size.
        """,
    ),
    passed="no more all-reduces than buffers, and no byte too many",
    contract=Contract(
        in_place="tensors",
        takes="tensors of any shape and dtype, even none",
        transposed=True,
        allowed=frozenset({"all_reduce"}),
        sends="there are no more all-reduces than buffers, none is larger than `buffer_bytes` "
        "except for a larger tensor, and together they have no byte more than the tensors",
    ),
)
