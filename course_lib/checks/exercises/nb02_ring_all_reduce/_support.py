"""What the collectives of this notebook share: their cases, and verdicts on values and traffic.

A tensor is cut into n equal chunks, n the size of the group: of ceil(numel / n) elements, the last
ones padded with zeros.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import torch

from course_lib.checks import case_inputs, compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import Call
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Clue, Finding, Observation
from course_lib.checks.format_tensor import glimpse, glimpse_inputs

_GLOBAL_RANKS = Clue(
    "ranks are counted inside the group here: dist.get_rank(group) is your own, and group_dst and "
    "group_src name the others. dst and src are global ranks",
    "rank",
    "IndexError",
)
ALONE = Clue(
    "one rank has no neighbour: the loop over n - 1 steps must do nothing",
    "rank of the current process",
    "ZeroDivisionError",
    "IndexError",
)
FLAT = Clue("any shape may come in: flatten it first", "size", "shape", "dim")
POINT = Clue(
    "a tensor of no dimensions, a single number: flatten() makes one of one element of it, "
    "tensor[:] = ... fails on it, and tensor.copy_(...) works",
    "dim",
    "0-d",
    "pad",
)


# ---------------------------------------------------------------------------------------------


def legible(world_size: int, numel: int, dtype: torch.dtype = torch.float32) -> Case:
    tensors = [t.to(dtype) for t in case_inputs.by_powers_of_ten(world_size, numel)]
    return Case(world_size, _label(world_size, tensors[0]), {"inputs": tensors})


def drawn(
    rng: random.Random,
    world_size: int,
    shape: int | tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    clue: str = "",
) -> Case:
    tensors = case_inputs.spread(rng, world_size, shape, dtype)
    return Case(world_size, _label(world_size, tensors[0]), {"inputs": tensors}, clue)


def in_group(
    rng: random.Random, world_size: int, members: tuple[int, ...], shape: int | tuple[int, ...]
) -> Case:
    tensors = case_inputs.spread(rng, len(members), shape)
    label = f"{_label(len(members), tensors[0])}: the group of {traffic_limits.ranks(members)}"
    data = {"inputs": tensors, "members": list(members)}
    return Case(world_size, f"{label}, out of {world_size}", data, _GLOBAL_RANKS)


def _label(ranks: int, tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    each = f"a {dtype} tensor of {tensor.numel()} element{'s' * (tensor.numel() != 1)}"
    if tensor.dim() != 1:
        each = f"a {dtype} tensor of shape {tuple(tensor.shape)}"
    return f"{ranks} ranks with {each} each" if ranks > 1 else f"1 rank with {each}"


def uneven(numel: int, n: int) -> Clue:
    return Clue(
        f"{numel} elements do not divide into {n} equal chunks: pad with zeros to a multiple of "
        f"{n} before, and leave the padding out at the end",
        "size",
        "shape",
        "IndexError",
    )


def half_of_ring(takes: str, sends: str, *, separate: bool = False) -> Contract:
    """The contract of each half of the ring: a new flat tensor, by sends to a neighbour."""
    return Contract(
        anew=True,
        takes=f"any shape{takes}",
        gives="the result is flat",
        dtypes=("float32", "float64", "bfloat16", "int64"),
        transposed=True,
        groups=True,
        allowed=POINT_TO_POINT,
        separate=separate,
        sends=f"each rank sends {sends}, to its neighbour in the ring",
    )


def own_inputs(case: Case) -> dict[int, torch.Tensor]:
    """Each participating rank's tensor, in the order of the group."""
    members = case.data.get("members") or range(case.world_size)
    return dict(zip(members, case.data["inputs"], strict=True))


# ---------------------------------------------------------------------------------------------


def in_place(
    case: Case,
    observation: Observation,
    lookalikes: Callable[[int], dict[str, torch.Tensor]] = lambda me: {},
) -> Finding | None:
    """Every rank's tensor holds the sum, and is what was returned; all bits alike.

    lookalikes: what known mistakes give on a member of the group.
    """
    want = reference.total(own_inputs(case))
    calls: dict[int, Call] = {rank: observation.values[rank] for rank in own_inputs(case)}
    for me, (rank, call) in enumerate(calls.items()):
        holds = compare_tensors.mismatch(call.argument, want, rank)
        if call.returned is None and holds is None:
            return Finding(
                "the tensor holds the sum, but your function returned nothing: end it with "
                "`return tensor`",
                rank,
            )
        if finding := compare_tensors.mismatch(call.returned, want, rank, lookalikes(me)):
            return _shown(finding, case)
        if holds:
            return Finding(
                "what you returned is right, but the tensor that was passed in does not hold it: "
                "work in place, as dist.all_reduce does, for example with tensor.copy_(result)",
                rank,
                expected=holds.expected,
                got=holds.got,
            )
    return compare_tensors.ranks_differ({rank: call.argument for rank, call in calls.items()})


def new_tensor(
    case: Case,
    observation: Observation,
    want: Callable[[int], reference.Reference],
    lookalikes: Callable[[int], dict[str, torch.Tensor]],
) -> Finding | None:
    """Every rank returned a tensor of its own and left its input alone."""
    for me, (rank, own) in enumerate(own_inputs(case).items()):
        call: Call = observation.values[rank]
        if finding := compare_tensors.mismatch(call.returned, want(me), rank, lookalikes(me)):
            if call.returned is not None and not torch.equal(call.argument, own):
                finding = replace(finding, likely=f"{finding.likely}. Your input changed as well")
            return _shown(finding, case)
        if not torch.equal(call.argument, own):
            return Finding(
                "the result is right, but the tensor that was passed in has changed: add up in a "
                "copy, tensor.clone()",
                rank,
                expected=f"the input still {glimpse(own)}",
                got=glimpse(call.argument),
            )
        if call.shares_memory and len(own_inputs(case)) > 1:
            return Finding(
                "the result lies in the memory of the tensor that was passed in, so the caller's "
                "next change to one changes the other: return a tensor of its own",
                rank,
            )
    return None


def _shown(finding: Finding, case: Case) -> Finding:
    return replace(finding, input=glimpse_inputs(own_inputs(case)))


# ---------------------------------------------------------------------------------------------


def ring(case: Case, observation: Observation, least: int, most: int, rule: str) -> Finding | None:
    """Every rank sends `least` to `most` elements, and only to its neighbours."""
    members = list(own_inputs(case))
    size = case.data["inputs"][0].element_size()
    for me, rank in enumerate(members):
        finding = traffic_limits.sent(
            observation,
            rank,
            least * size,
            most * size,
            rule,
            _too_much(case, observation, rank, most * size),
        )
        neighbours = {members[me - 1], members[(me + 1) % len(members)]} - {rank}
        finding = finding or traffic_limits.peers(
            observation, rank, neighbours, "in a ring a rank only sends to its neighbour"
        )
        if finding:
            return finding
    return None


def _too_much(case: Case, observation: Observation, rank: int, most: int) -> str:
    """What the messages show of why they are too much."""
    tensor, n = case.data["inputs"][0], len(own_inputs(case))
    sent = [event for event in observation.trace.of(rank) if event.op == "send"]
    nbytes, dtype = sum(event.nbytes for event in sent), str(tensor.dtype).removeprefix("torch.")
    others = sorted({event.dtype.removeprefix("torch.") for event in sent} - {dtype})
    if others:
        return (
            f"What is sent is {others[0]}, and the tensor is {dtype}: torch's zeros are float32 "
            "unless they are told, as tensor.new_zeros(...) is"
        )
    if n > 1 and nbytes * (n - 1) == most * n and len(sent) % n == 0:
        return f"One step too many: the {n - 1} others' chunks take n - 1 = {n - 1} steps"
    row_too_many = (tensor.numel() // n + 1) * tensor.element_size()
    if tensor.numel() % n == 0 and {event.nbytes for event in sent} == {row_too_many}:
        return (
            f"{tensor.numel()} elements divide by {n}, and a whole row of zeros was added: "
            f"n - numel % n is {n} then, and -numel % n is 0"
        )
    if any(event.nbytes >= tensor.nbytes > 0 for event in sent):
        return "A message is as large as the whole tensor, where one chunk would do"
    return ""


def all_reduce_elements(case: Case) -> tuple[int, int]:
    """Elements a rank must send at least and at most, if the chunks are padded or uneven."""
    numel, n = case.data["inputs"][0].numel(), len(own_inputs(case))
    chunk = math.ceil(numel / n)
    return 2 * (numel - chunk), 2 * (n - 1) * chunk
