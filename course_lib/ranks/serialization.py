"""What crosses the process border: the learner's function going out, its results coming back.

Functions go by value (cloudpickle), so a function of a notebook cell, a lambda or a closure can run
in a process that never saw the notebook. Tensors come back detached, on the CPU, and without the
storage that they were a view of: plain bytes, no file descriptors or shared memory of a process
that is about to end.
"""

import importlib
import io
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import cloudpickle
import torch


def pack(value: Any) -> bytes:
    """Pickle `value` by value, keeping for each code object the file it was written in."""
    with io.BytesIO() as file:
        _Outgoing(file).dump(value)
        return file.getvalue()


@dataclass(frozen=True)
class Codec:
    """How results travel: `pack` is called in a rank, `unpack` where they are collected."""

    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


def pack_result(value: Any) -> bytes:
    """The bytes of what a rank returned, in the format of `codec`."""
    return codec.pack(value)


def unpack_result(payload: bytes) -> Any:
    """What a rank returned, out of its bytes."""
    return codec.unpack(payload)


def _pickled_result(value: Any) -> bytes:
    """Pickle what a rank returned; see `unpack` for what arrives."""
    with io.BytesIO() as file:
        _Result(file).dump(value)
        return file.getvalue()


_registering = threading.Lock()  # cloudpickle has one registry for all threads


def pack_anonymously(value: Any, by_value: Iterable[types.ModuleType]) -> bytes:
    """Pickle code of the course for a process that cannot import it.

    by_value: the modules whose functions and classes travel by value. Their files are not named:
    on arrival nobody takes their lines for the learner's.
    """
    with _registering:
        registered = cloudpickle.list_registry_pickle_by_value()
        ours = {module for module in by_value if module.__name__ not in registered}
        for module in ours:
            cloudpickle.register_pickle_by_value(module)
        try:
            return cloudpickle.dumps(value)
        finally:  # what is packed next in this process is for one that can import them
            for module in ours:
                cloudpickle.unregister_pickle_by_value(module)


def unpack(payload: bytes) -> Any:
    """Load what `pack` made. Loads pickles: only for one's own ranks."""
    return cloudpickle.loads(payload)


codec = Codec(_pickled_result, unpack)  # exchanged where ranks run what nobody trusts


def _reduce_code(code: types.CodeType) -> tuple:
    # cloudpickle calls every file "<dynamic-code>". The report of a stuck rank must name the cell
    # and line that the learner wrote, so the name is put back on arrival.
    constructor, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)[:2]
    return _restore_code, (constructor, arguments, code.co_filename)


def _restore_code(constructor: type, arguments: tuple, filename: str) -> types.CodeType:
    return constructor(*arguments).replace(co_filename=filename)


# Younger types, which torch's own pickling does not know.
_WITHOUT_STORAGE = {
    dtype
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and name.startswith(("float8", "uint16", "uint32", "uint64"))
}


class _Outgoing(cloudpickle.Pickler):
    dispatch_table: ClassVar = ChainMap(
        {types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.dtype in _WITHOUT_STORAGE and _is_plain(value):
            return _reduce_tensor(value)
        if _is_odd_module(value):
            return importlib.import_module, (value.__name__,)
        return super().reducer_override(value)


class _Result(_Outgoing):
    def reducer_override(self, value: Any) -> Any:
        if type(value) in (torch.Tensor, torch.nn.Parameter) and _is_plain(value):
            return _reduce_tensor(value)
        return super().reducer_override(value)


def _is_odd_module(value: Any) -> bool:
    """A module of a class of its own, as torch.ops is, which cloudpickle takes for an object."""
    odd = isinstance(value, types.ModuleType) and type(value) is not types.ModuleType
    return odd and sys.modules.get(value.__name__) is value


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements are all that it has; torch's own way is for sparse ones and the like."""
    odd = tensor.is_meta or tensor.is_quantized or tensor.is_nested
    return tensor.layout == torch.strided and not odd


def _reduce_tensor(tensor: torch.Tensor) -> tuple:
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = values.reshape(-1)
    if flat.numel() < 2:  # contiguous whatever its stride, which may be 0
        flat = flat.new_empty(flat.numel()).copy_(flat)
    payload = flat.view(torch.uint8).numpy().tobytes()
    trainable = tensor.requires_grad if isinstance(tensor, torch.nn.Parameter) else None
    return _restore_tensor, (payload, values.dtype, tuple(values.shape), trainable)


def _restore_tensor(
    payload: bytes, dtype: torch.dtype, shape: tuple[int, ...], trainable: bool | None
) -> torch.Tensor:
    if payload:
        tensor = torch.frombuffer(bytearray(payload), dtype=dtype).reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    return tensor if trainable is None else torch.nn.Parameter(tensor, requires_grad=trainable)
