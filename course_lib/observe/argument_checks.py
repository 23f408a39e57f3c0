"""Calls that gloo would answer with garbage: refused before they are issued."""

import itertools

import torch

from .calls import Call
from .memory_overlap import has_memory

_ELEMENTWISE = {"all_reduce", "reduce"}


def reason_to_refuse(call: Call) -> tuple[str, str] | None:
    """(kind of warning, sentence for the learner) if `call` must not be issued."""
    if call.peer is not None and not 0 <= call.peer < call.group.size():
        return "no_such_rank", _no_such_rank(call)
    for name, tensors in [*call.reads.items(), *call.writes.items()]:
        for position, tensor in enumerate(tensors):
            if not _in_order(tensor, call.op):
                entry = f"{name}[{position}]" if len(tensors) > 1 else name
                return "non_contiguous", _non_contiguous(call, entry, tensor)
    for name in call.lists:
        if pair := _shared(call.writes[name]):
            return "aliased_list", _aliased(call, name, *pair)
    return None


def _no_such_rank(call: Call) -> str:
    n = call.group.size()
    ring = ""
    if call.op in ("send", "recv"):
        at, sign = ("next", "+") if (call.peer or 0) >= n else ("previous", "-")
        ring = f": the {at} one in a ring of n is (rank {sign} 1) % n"
    return (
        f"dist.{call.op} names rank {call.peer}, and the {n} ranks of this group are numbered from "
        f"0 to {n - 1}{ring}"
    )


def _in_order(tensor: torch.Tensor, op: str) -> bool:
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return True
    # As NCCL does: adding up element by element is right in any order that the ranks agree on.
    return op in _ELEMENTWISE and any(
        tensor.dim() == dims and tensor.is_contiguous(memory_format=layout)
        for dims, layout in ((4, torch.channels_last), (5, torch.channels_last_3d))
    )


def _non_contiguous(call: Call, name: str, tensor: torch.Tensor) -> str:
    shape, strides = tuple(tensor.shape), tensor.stride()
    fix = (
        f"Pass `{name}.contiguous()`."
        if name in call.reads and name not in call.writes
        else f"Pass a contiguous copy and copy the result back: `c = {name}.contiguous()`, "
        f"dist.{call.op} on `c`, `{name}.copy_(c)`."
    )
    return (
        f"dist.{call.op} got a tensor that is not contiguous: argument `{name}` is a view of shape "
        f"{shape} with strides {strides}, so its values do not lie one after the other in memory. "
        f"Gloo ignores strides and takes whatever bytes come next, which gives wrong numbers "
        f"without an error. {fix}"
    )


def _shared(tensors: list[torch.Tensor]) -> tuple[int, int] | None:
    """Two entries of the list that share memory."""
    ranges = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), index)
        for index, tensor in enumerate(tensors)
        if has_memory(tensor)
    )
    for (_, stop, one), (start, _, other) in itertools.pairwise(ranges):
        if start < stop:
            return min(one, other), max(one, other)
    return None


def _aliased(call: Call, name: str, one: int, other: int) -> str:
    return (
        f"dist.{call.op} got a list whose entries share memory: `{name}[{one}]` and "
        f"`{name}[{other}]` are the same tensor or overlap, so one rank's values would overwrite "
        f"another's. `[torch.empty(k)] * n` makes n names for one tensor: write "
        f"`[torch.empty(k) for _ in range(n)]`."
    )
