"""What an ordinary operator does to the memory of its arguments, told by its schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

# Operators that look at sizes only, though their schema does not say so.
_METADATA = ("_like", "_unsafe_view", "is_same_size", "_reshape_alias", "numel", "sym_numel")
_HARMLESS = ("new_", "sym_", "record_stream")
_ELSEWHERE = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "profiler"}


@dataclass(frozen=True, slots=True)
class Effects:
    """Positions (or, for keyword arguments, names) of the arguments read and written."""

    reads: tuple[int | str, ...]
    writes: tuple[int | str, ...]


def effects(func: Any) -> Effects | None:
    """Of operator `func`; None if it touches no element, as a view."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace in _ELSEWHERE:
        return None
    name = schema.name.partition("::")[2]
    if torch.Tag.inplace_view in func.tags or name.startswith(_HARMLESS):
        return None
    reads, writes = [], []
    for position, argument in enumerate(schema.arguments):
        if "Tensor" not in str(argument.type):
            continue
        key = argument.name if argument.kwarg_only else position
        if argument.alias_info is None:
            reads.append(key)
        elif argument.alias_info.is_write:
            writes.append(key)
        # else: the result is a view of this argument, whose elements nobody looks at
    if name.endswith(_METADATA):
        reads = []
    return Effects(tuple(reads), tuple(writes)) if reads or writes else None


def tensors(keys: tuple[int | str, ...], args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """The tensors among the arguments at `keys`, lists opened."""
    for key in keys:
        value: Any = kwargs.get(key)
        if isinstance(key, int):
            value = args[key] if key < len(args) else None
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, torch.Tensor))
