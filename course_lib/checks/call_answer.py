"""On a rank: call the answer and note, as plain values, what it did to its arguments."""

import decimal
import fractions
import numbers
from collections.abc import Callable, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from .exercise import Case
from .process_groups import group_of


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
    keyword `group`; `inputs` are in the members' order, and the other ranks return None. The
    exercise has `own={"inputs": by_rank}` and `groups=members_of`.
    """
    members, me = case.data.get("members"), dist.get_rank()
    keywords = {}
    if members is not None:
        if me not in members:
            return None
        keywords["group"] = group_of(members)
        me = members.index(me)
    tensor = case.data["inputs"][me].clone()
    returned = answer(tensor, **keywords)
    return Call(plain(returned), plain(tensor), _share_memory(returned, tensor))


def members_of(case: Case) -> list[list[int]]:
    """The groups of cases with `members`, for `Exercise.groups`."""
    return [case.data["members"]] if case.data.get("members") else []


def plain(value: Any) -> Any:
    """`value` with tensors copied, and of other libraries' numbers and containers the plain ones.

    A number of numpy, a Fraction, a named tuple, an OrderedDict, a deque or a numpy array is as
    right as what it stands for. Anything else is replaced by its kind.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, str):
        return str(value)
    lists = isinstance(value, Sequence | ValuesView | KeysView)
    if lists and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    return _number(value)


def _number(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist())  # an array, or one of its numbers
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, fractions.Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, numbers.Real | decimal.Decimal):
        return float(value)
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
