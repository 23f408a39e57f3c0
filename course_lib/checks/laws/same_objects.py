"""Tensors stay the objects that they were, in the memory that they had.

An optimizer, a view or a captured graph knows a parameter by its memory. `p.data = other` and
`tensor.set_(...)` look right to whoever holds the same object, and to nobody else.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakIdRef

from ._law import Call, Law, Watch
from ._snapshot import modules, tensors

_ELSEWHERE = "than before the call"


def watch(call: Call) -> Watch:
    arguments, moves = dict(call.arguments), call.contract.moves
    before = {name: _noted(name, value, name in moves) for name, value in arguments.items()}
    yield
    if found := _moved(before, arguments, moves):
        return found
    yield
    return _moved(before, arguments, moves)


def _noted(argument: str, value: Any, may_move: bool) -> dict[str, Any]:
    noted: dict[str, Any] = {}
    if not may_move:
        noted |= {name: _of(tensor) for name, tensor in tensors(value)}
    for at, module in modules(value, argument):
        learn = [p.requires_grad for p in module.parameters()]
        noted[f"the list of the parameters of `{at}` that learn"] = learn
        noted[f"the list of the keys of the state_dict of `{at}`"] = list(module.state_dict())
        noted[f"the mode (train or eval) of `{at}`"] = [m.training for m in module.modules()]
    return noted


def _of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """References that keep nothing alive; an id or address alone may come back with another."""
    layout = (tensor.storage_offset(), tensor.stride(), tensor.shape)
    memory = StorageWeakRef(tensor.untyped_storage())
    return (WeakIdRef(tensor), memory, *layout, tensor.requires_grad)


def _moved(
    before: dict[str, dict[str, Any]], arguments: dict[str, Any], moves: Collection[str]
) -> str | None:
    for argument, value in arguments.items():
        noted = before[argument]
        now = _noted(argument, value, argument in moves)
        for name in {**noted, **now}:
            if noted.get(name) == now.get(name):
                continue
            title = f"`{argument}{name}`" if name.startswith((".", "[")) or not name else name
            return _told(title, noted.get(name), now.get(name))
    return None


def _told(title: str, before: Any, now: Any) -> str:
    if now is None:
        return f"{title} is gone after the call, and whoever called still needs it: work on a copy"
    if not isinstance(before, tuple) or not isinstance(now, tuple):
        return f"{title} is not what it was before the call ({before} before, {now} after)"
    is_same_tensor = before[0] == now[0]  # by != a weak reference compares what it refers to
    if not is_same_tensor:
        return (
            f"{title} is another tensor {_ELSEWHERE}: others hold the old one, so write "
            "into it with copy_"
        )
    if before[-1] != now[-1]:
        return f"{title}: requires_grad was {before[-1]} and is {now[-1]} after the call"
    return (
        f"{title} lies in other memory {_ELSEWHERE} (by .data = or set_), and whoever "
        "holds the old one, as a view does, sees nothing of the result: write with copy_"
    )


def is_of_memory(sentence: str) -> bool:
    """Whether a breach is that a tensor is another, or lies elsewhere, where nobody looks."""
    return _ELSEWHERE in sentence


LAW = Law(watch)
