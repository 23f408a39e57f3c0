"""What is returned shares no memory with what an earlier call returned, but for arguments.

What is to be in memory of its own shares none with the arguments either, nor one part with another.
A view looks right until somebody writes into what it is a view of. Disjoint parts of one new tensor
are as good as several.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from ._law import Call, Law, Watch
from ._snapshot import tensors


def watch(call: Call) -> Watch:
    arguments = list(_spans(call.arguments))
    yield
    results = list(_spans({"": call.returned}))
    # With one rank nothing has to move, and a tensor may be its own result.
    if call.contract.anew and dist.get_world_size() > 1 and (told := _shared(results, arguments)):
        return told
    for at, own in results:
        if any(_overlap(own, other) for _, other in arguments):
            continue
        if any(_overlap(own, other) for _, other in _spans({"": list(call.earlier)})):
            return (
                f"{_entry(at)} lies in the memory of what an earlier call returned, so whoever "
                "changes one changes the other: make a new tensor in every call"
            )
    return None


def _shared(
    results: Sequence[tuple[str, "_Span"]], arguments: Sequence[tuple[str, "_Span"]]
) -> str:
    """Which memory a result has that is not its own; "" where all of it is."""
    for i, (at, own) in enumerate(results):
        for name, other in arguments:
            if _overlap(own, other):
                return (
                    f"{_entry(at)} lies in the memory of `{name}`, so the caller's next change to "
                    "one changes the other: give it memory of its own, for example a clone()"
                )
        for before, other in results[:i]:
            if _overlap(own, other):
                return (
                    f"{_entry(at)} and {_entry(before)} share memory, so a change to one changes "
                    "the other: give each memory of its own, for example torch.empty_like(...)"
                )
    return ""


_Span = tuple[int, int, int]  # storage, first byte, one behind the last


def _spans(values: dict[str, object]) -> Iterator[tuple[str, _Span]]:
    for argument, value in values.items():
        for name, tensor in tensors(value):
            if tensor.numel() and tensor.layout is torch.strided:
                pairs = zip(tensor.shape, tensor.stride(), strict=True)
                reach = sum((size - 1) * step for size, step in pairs)
                first = tensor.data_ptr()
                behind = first + (reach + 1) * tensor.element_size()
                yield f"{argument}{name}", (tensor.untyped_storage().data_ptr(), first, behind)


def _overlap(one: _Span, other: _Span) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _entry(at: str) -> str:
    return f"entry {at} of the result" if at else "the result"


LAW = Law(watch)
