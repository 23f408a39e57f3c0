"""What an object held at some moment, to compare with later."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

_DEEPEST = 6


def tensors(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in containers and modules, each with where it lies: "[2]", ".weight"."""
    if depth > _DEEPEST:
        return
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, nn.Module):
        for key, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{name}.{key}", tensor
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{name}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors(item, f"{name}[{index}]", depth + 1)


def modules(value: Any, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """A module, what it wraps as DistributedDataParallel does, or those of a list, each with where
    it lies: "[2]", ".module"."""
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from modules(each, f"{name}[{index}]")
        return
    wrapped = getattr(value, "module", None)
    for at, each in ((name, value), (f"{name}.module", wrapped)):
        if isinstance(each, nn.Module):
            yield at, each


def frozen(value: Any, depth: int = 0) -> Any:
    """A copy that nobody changes; of what is no container and no tensor, the object itself."""
    value = _of_lists(value)
    if depth > _DEEPEST:
        return value
    if isinstance(value, torch.Tensor):
        return _copy(value)
    if isinstance(value, nn.Module):
        return {name: _copy(tensor) for name, tensor in tensors(value)}
    if isinstance(value, Mapping):
        return {key: frozen(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [frozen(item, depth + 1) for item in value]
    return value


def difference(before: Any, value: Any, name: str = "") -> str:
    """Where `value` is no longer what `frozen` noted: "[2]", or "itself"; "" where it is."""
    value = _of_lists(value)
    if isinstance(value, torch.Tensor):
        now = _copy(value)
        same = isinstance(before, torch.Tensor) and _equal(before, now)
        return "" if same else name or "itself"
    if isinstance(value, nn.Module):
        return difference(before, dict(tensors(value)), name)
    if isinstance(value, Mapping):
        if not isinstance(before, dict) or list(before) != list(value):
            return name or "itself"
        parts = (difference(before[key], item, f"{name}[{key!r}]") for key, item in value.items())
        return next(filter(None, parts), "")
    if isinstance(value, list | tuple):
        if not isinstance(before, list) or len(before) != len(value):
            return name or "itself"
        pairs = enumerate(zip(before, value, strict=True))
        parts = (difference(old, now, f"{name}[{i}]") for i, (old, now) in pairs)
        return next(filter(None, parts), "")
    plain = isinstance(value, bool | int | float | complex | str | bytes | None)
    same = type(before) is type(value) and (before == value or before != before)
    return "" if (same if plain else before is value) else name or "itself"


def _of_lists(value: Any) -> Any:
    """An array of numpy, or one of its numbers, as Python has them."""
    numpys = type(value).__module__ == "numpy" and hasattr(value, "tolist")
    return value.tolist() if numpys else value


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The values; without any where the storage has been given back, and reading would crash."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return torch.empty(0)
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + reach + 1) * tensor.element_size() if tensor.numel() else 0
    if tensor.untyped_storage().nbytes() < needed:
        return torch.empty(0, dtype=tensor.dtype)
    return tensor.detach().clone()


def _equal(before: torch.Tensor, now: torch.Tensor) -> bool:
    """The same shape, dtype and bits; two that are not a number are the same."""
    if before.shape != now.shape or before.dtype != now.dtype:
        return False
    return bool(((before == now) | ((before != before) & (now != now))).all())


def leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """All that is no container in a value of plain containers and records, by where it lies."""
    value = _of_lists(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping) and depth <= _DEEPEST:
        for key, item in value.items():
            yield from leaves(item, f"{name}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple) and depth <= _DEEPEST:
        yield f"len({name})", len(value)
        for index, item in enumerate(value):
            yield from leaves(item, f"{name}[{index}]", depth + 1)
    else:
        yield name, value


def same(one: Any, other: Any) -> bool:
    """Whether two leaves are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        return both and _equal(one, other)
    return type(one) is type(other) and bool(one == other)


def alike(one: Any, other: Any) -> bool:
    """The same up to rounding: a library may add up in another order at every call."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6) or same(one, other)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        fits = one.shape == other.shape and one.dtype == other.dtype
        return fits and torch.allclose(one, other, rtol=1e-4, equal_nan=True)
    return same(one, other)
