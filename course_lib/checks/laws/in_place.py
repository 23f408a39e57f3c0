"""A result in place is there for whoever holds the memory, and the memory around it stays.

The check's tensor is exchanged for a view of a larger one: a slice of it, and where the contract
lets it come transposed, at every second call one whose elements do not lie one after the other.
"""

from typing import Any, TypeGuard

import torch

from ._law import Call, Law, Watch

_MARGIN = 5  # elements before and behind
_CANARY = 77  # what they hold


def watch(call: Call) -> Watch:
    name = call.contract.in_place
    given = call.arguments.get(name)
    spread = call.contract.transposed and call.number % 2 == 1
    originals = list(given) if isinstance(given, list) else [given]
    views = [_View(t, spread) for t in originals if _lendable(t)]
    if len(views) != len(originals):
        return None
    lent = [view.tensor for view in views]
    call.arguments[name] = lent if isinstance(given, list) else lent[0]
    yield
    told = _returns_another(call.returned, views) if call.contract.returned is True else ""
    back = {id(view.tensor): view.original for view in views}
    call.returned = given if call.returned is lent else _exchanged(call.returned, views, back)
    for view in views:
        view.original.copy_(view.inside)
        if view.touched():
            return (
                f"`{name}` was a view of a larger tensor, and elements outside of the view have "
                "changed: write only into the tensor that came in"
            )
    return told or None


def _returns_another(returned: Any, views: list["_View"]) -> str:
    """Said where what is returned is not what was passed in, which holds the result as well."""
    found = returned if isinstance(returned, list | tuple) else [returned]
    tensors = [each for each in found if isinstance(each, torch.Tensor) and each.numel()]
    own = {view.inside.untyped_storage().data_ptr() for view in views}
    if all(each.untyped_storage().data_ptr() in own for each in tensors):
        return ""
    return (
        "what is returned is another tensor than the one that was passed in: whoever goes on with "
        "one of them changes only that one. Return what came in"
    )


def _lendable(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not value.requires_grad


class _View:
    """`tensor`, with the values of `original`, inside a larger one."""

    def __init__(self, original: torch.Tensor, spread: bool):
        self.original = original
        shape = original.shape
        strides = _spread(shape) if spread else _dense(shape)
        reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        room = (reach + 1 if original.numel() else 0) + 2 * _MARGIN
        self._buffer = torch.full((room,), _CANARY, dtype=original.dtype)
        self._around = torch.ones(room, dtype=torch.bool)
        self._around.as_strided(shape, strides, _MARGIN).fill_(False)
        # Two views: the answer may turn the one it gets to other memory.
        self.tensor = self._buffer.as_strided(shape, strides, _MARGIN).copy_(original)
        self.inside = self._buffer.as_strided(shape, strides, _MARGIN)

    def touched(self) -> bool:
        return bool((self._buffer[self._around] != self._buffer.new_tensor(_CANARY)).any())


def _dense(shape: torch.Size) -> tuple[int, ...]:
    return torch.empty(shape, device="meta").stride()


def _spread(shape: torch.Size) -> tuple[int, ...]:
    """As a transposed tensor has them."""
    return torch.empty(shape[::-1], device="meta").stride()[::-1]


def _exchanged(value: Any, views: list[_View], back: dict[int, torch.Tensor]) -> Any:
    """What was returned, with the check's own tensors where the lent ones are."""
    if isinstance(value, torch.Tensor):
        if id(value) in back:
            return back[id(value)]
        for view in views:
            inside = view.inside
            whole = value.data_ptr() == inside.data_ptr() and value.shape == inside.shape
            if whole and value.stride() == inside.stride():
                return view.original
        return value
    if type(value) in (list, tuple):
        return type(value)(_exchanged(item, views, back) for item in value)
    return value


LAW = Law(watch, applies=lambda contract: bool(contract.in_place), order=-1)
