"""On a rank: call the answer and put down, as plain values, what it did to its arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .exercise import Case


@dataclass(frozen=True)
class Other:
    """Something that is neither a number, a text, a tensor nor a container of these."""

    kind: str


@dataclass(frozen=True)
class Call:
    """One call of an answer on a tensor: what it returned, and the argument afterwards."""

    returned: Any
    argument: torch.Tensor
    shares_memory: bool  # whether the returned tensor lies in the argument's memory


def call_with_own_tensor(answer: Callable, case: Case) -> Call | None:
    """Call `answer` with this rank's tensor of `case.data["inputs"]`.

    With `case.data["members"]` the call happens on these ranks only, with a group of them as the
    keyword `group`; `inputs` are in the members' order, and the other ranks return None.
    """
    members, me = case.data.get("members"), dist.get_rank()
    keywords = {}
    if members is not None:
        keywords["group"] = dist.new_group(members)
        if me not in members:
            return None
        me = members.index(me)
    tensor = case.data["inputs"][me].clone()
    returned = answer(tensor, **keywords)
    return Call(plain(returned), plain(tensor), _share_memory(returned, tensor))


def plain(value: Any) -> Any:
    """`value` with tensors copied, containers kept, and anything else replaced by its kind."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, float):  # numpy's float64 is one
        return float(value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    if type(value) is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    return Other(kind_of(value))


def kind_of(value: Any) -> str:
    """ "a list", "an int", "nothing": what a value is, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, Other):
        return value.kind
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def shown(value: Any) -> str:
    """A plain value as a person reads it: its text if that is short, else its kind."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else kind_of(value)


def _share_memory(one: Any, other: torch.Tensor) -> bool:
    if not isinstance(one, torch.Tensor) or not one.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
