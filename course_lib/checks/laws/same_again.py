"""A function of its arguments gives the same when it is called with the same once more.

Applies where nothing is sent and nothing may change, to calls whose arguments are numbers, texts,
tensors and containers of these.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ._law import Call, Law, Watch
from ._snapshot import alike, difference, frozen, leaves


def watch(call: Call) -> Watch:
    if not all(_plain(value) for value in call.arguments.values()):
        return None
    before = frozen(call.arguments)
    yield
    if difference(before, call.arguments):
        return None  # another law tells
    first = dict(leaves(frozen(call.returned)))
    with _disable_current_modes():  # who counts operations counts those of the first call
        second = dict(leaves(frozen(call.again())))
    if first.keys() != second.keys() or not all(alike(first[k], second[k]) for k in first):
        return (
            "a second call with the very same arguments gives something else: what does the "
            "function keep from one call to the next?"
        )
    return None


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, Mapping):
        return all(_plain(item) for item in value.values())
    if isinstance(value, torch.Tensor):
        return not value.requires_grad  # else whoever called counts what is computed
    return value is None or isinstance(value, bool | int | float | str)


def _applies(contract: Any) -> bool:
    given_away = contract.in_place or contract.changes or contract.moves or contract.may
    return contract.allowed == frozenset() and not given_away


LAW = Law(watch, applies=_applies, order=-1)
