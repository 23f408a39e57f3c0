"""What happened in a case, as bytes that are safe to read wherever they come from.

A pickle runs what its writer wants as it is read. Here the reader only ever builds numbers, texts,
lists, tensors, and the record types of `course_lib.checks` and `course_lib.observe`:

    4 bytes     length of the description
    JSON        the description: plain values as they are, all else as {"tag": ...}
    bytes       the elements of all tensors, one after the other

Whoever ran the answer may also have written the bytes, so the reader believes nothing: sizes are
compared before memory is taken, names are looked up and never imported, texts are cut.
"""

import dataclasses
import functools
import json
import math
import sys
import types
import typing
from pathlib import PurePosixPath
from typing import Any

import torch

from course_lib.checks.call_answer import Other, kind_of
from course_lib.checks.exercise import Observation
from course_lib.checks.run_answer import Outcome
from course_lib.observe import Frame
from course_lib.ranks import serialization

from .answer_program import ANSWERS
from .names import CHECKS, OBSERVE, technique_file

LARGEST = 256 * 2**20  # bytes of one message
_LONGEST_TEXT = 20_000
_DEEPEST = 60
_MOST_RANKS = 256
_ROOMS = (f"{CHECKS}.", f"{OBSERVE}.")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.bfloat16, torch.float16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def dump(outcome: Outcome) -> bytes:
    """The bytes of an outcome. What is no plain value becomes `Other`, which names its kind."""
    return dump_value(outcome)


def load(message: bytes) -> Outcome:
    """The outcome in `message`. Raises `ValueError` for anything that `dump` would not write."""
    outcome = load_value(message, strict=True)
    if not isinstance(outcome, Outcome):
        raise ValueError(f"not an outcome: {kind_of(outcome)}")
    _require_sense(outcome)
    return outcome


def carry_results() -> None:
    """Have what ranks return travel in this format, in this process and those forked from it."""
    serialization.codec = serialization.Codec(dump_value, load_value)


def dump_value(value: Any) -> bytes:
    """The bytes of what a rank returned."""
    tensors: list[bytes] = []
    description = json.dumps(_described(value, tensors)).encode()
    return b"".join([len(description).to_bytes(4, "big"), description, *tensors])


def load_value(message: bytes, strict: bool = False) -> Any:
    """What a rank returned. Raises `ValueError` for anything that `dump_value` would not write.

    Records of classes that are not loaded here become `Unknown`, or with `strict` are refused.
    """
    if len(message) > LARGEST:
        raise ValueError(f"a result has at most {LARGEST} bytes, and this has {len(message)}")
    end = 4 + int.from_bytes(message[:4], "big")
    try:
        return _Reader(memoryview(message)[end:], strict).read(json.loads(message[4:end]))
    except (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as problem:
        raise ValueError(f"not a result: {type(problem).__name__}: {problem}") from None


# ---------------------------------------------------------------------------------------------


def _described(value: Any, tensors: list[bytes]) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str:
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + " ..."
    if type(value) is list:
        return [_described(item, tensors) for item in value]
    if type(value) in (tuple, set, frozenset):
        return {"tag": type(value).__name__, "items": [_described(item, tensors) for item in value]}
    if type(value) is dict:
        pairs = [[_described(k, tensors), _described(v, tensors)] for k, v in value.items()]
        return {"tag": "dict", "items": pairs}
    if isinstance(value, torch.Tensor):
        return _described_tensor(value, tensors)
    kind = type(value)
    if kind is Unknown:
        fields = [[name, _described(item, tensors)] for name, item in value.fields]
        return {"tag": "record", "type": list(value.kind), "fields": fields}
    if dataclasses.is_dataclass(kind) and kind.__module__.startswith(_ROOMS):
        fields = [
            [field.name, _described(getattr(value, field.name), tensors)]
            for field in dataclasses.fields(kind)
            if field.init
        ]
        return {"tag": "record", "type": [kind.__module__, kind.__qualname__], "fields": fields}
    return _described(Other(kind_of(value)), tensors)


def _described_tensor(value: torch.Tensor, tensors: list[bytes]) -> Any:
    if value.layout != torch.strided or value.is_meta or value.dtype not in _NAMES:
        return _described(Other(f"a tensor of {value.dtype}, {value.layout}"), tensors)
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # one element that was expanded has a stride of 0
    tensors.append(flat.view(torch.uint8).numpy().tobytes())
    return {"tag": "tensor", "dtype": _NAMES[value.dtype], "shape": list(value.shape)}


@dataclasses.dataclass
class Unknown:
    """A record whose class is not here: the grader has it. It is passed on as it came."""

    kind: tuple[str, str]
    fields: list[tuple[str, Any]]


class _Reader:
    """Turns a description back into values; `payload` holds the elements of its tensors.

    strict: records must be of classes that are loaded here.
    """

    def __init__(self, payload: memoryview, strict: bool):
        self._payload, self._at, self._strict = payload, 0, strict

    def read(self, given: Any, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise ValueError("an outcome that deep has not been written by a check")
        if given is None or isinstance(given, bool | int | float):
            return given
        if isinstance(given, str):
            return given[: _LONGEST_TEXT + 10]
        if isinstance(given, list):
            return [self.read(item, depth + 1) for item in given]
        tag = given["tag"]
        if tag == "tensor":
            return self._tensor(given["dtype"], given["shape"])
        if tag == "record":
            return self._record(given["type"], given["fields"], depth)
        items = given["items"]
        if tag == "dict":
            return {self.read(k, depth + 1): self.read(v, depth + 1) for k, v in items}
        containers = {"tuple": tuple, "set": set, "frozenset": frozenset}
        return containers[tag](self.read(item, depth + 1) for item in items)

    def _tensor(self, name: str, shape: list[int]) -> torch.Tensor:
        dtype = _DTYPES[name]
        if not all(type(size) is int and 0 <= size < 2**40 for size in shape) or len(shape) > 32:
            raise ValueError(f"not the shape of a tensor: {shape!r:.80}")
        end = self._at + math.prod(shape) * dtype.itemsize
        if end > len(self._payload):
            raise ValueError(f"a tensor of shape {shape!r:.80} without its elements")
        elements = bytearray(self._payload[self._at : end])
        self._at = end
        if not elements:
            return torch.empty(shape, dtype=dtype)
        if dtype is torch.bool:  # a byte other than 0 and 1 is no bool
            return (torch.frombuffer(elements, dtype=torch.uint8) != 0).reshape(shape)
        return torch.frombuffer(elements, dtype=dtype).reshape(shape)

    def _record(self, name: list[str], fields: list[list], depth: int) -> Any:
        module, qualified = name
        values = {field: self.read(value, depth + 1) for field, value in fields}
        if not self._strict and module not in sys.modules:
            return Unknown((f"{module}", f"{qualified}"), list(values.items()))
        kind = _record_type(module, qualified)
        if set(values) != {field.name for field in dataclasses.fields(kind) if field.init}:
            raise ValueError(f"not the fields of a {kind.__name__}: {', '.join(values)}")
        if kind is Frame:
            values["file"] = _harmless(values["file"])
        return kind(**values)


def _record_type(module: str, name: str) -> type:
    """A record type of the course that is loaded already; nothing is imported for it."""
    kind = vars(sys.modules[module]).get(name) if module.startswith(_ROOMS) else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{module}.{name} is no record of the course")
    return kind


def _harmless(file: str) -> str:
    """A report shows the lines of a frame: of an answer, never of a file that lies here."""
    path = PurePosixPath(file.replace("\\", "/"))
    if path.is_relative_to(ANSWERS) and ".." not in path.parts:
        return file
    return technique_file(file) or f"/elsewhere/{path.name}"


# ---------------------------------------------------------------------------------------------


def _require_sense(outcome: Outcome) -> None:
    """Raises `ValueError` for fields that hold something else than they are declared to."""
    if not _fits(outcome, Outcome):
        raise ValueError("an outcome whose fields do not hold what belongs there")
    if outcome.trouble is None and not outcome.observations:
        raise ValueError("an outcome is an observation or a trouble, and this is neither")
    for observation in outcome.observations:
        _require_sense_of(observation)


def _require_sense_of(observation: Observation) -> None:
    trace = observation.trace
    if not 1 <= trace.world_size <= _MOST_RANKS or len(observation.values) != trace.world_size:
        raise ValueError(f"{len(observation.values)} values of {trace.world_size} ranks")
    ranks = range(trace.world_size)
    for event in trace.events:
        named = [event.rank, *event.ranks, *([] if event.peer is None else [event.peer])]
        if any(rank not in ranks for rank in named) or event.nbytes < 0:
            raise ValueError(f"no such communication among {trace.world_size} ranks")


def _fits(value: Any, declared: Any) -> bool:
    """Whether `value`, and every record in it, is what its field is declared to be."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if declared is Any:
        return True
    if declared is None or declared is type(None):
        return value is None
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, choice) for choice in arguments)
    wanted = origin or declared
    if wanted is float:
        return type(value) in (int, float)
    if not isinstance(wanted, type) or not isinstance(value, wanted):
        return False
    if wanted is int:
        return type(value) is int
    if isinstance(value, tuple) and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if isinstance(value, list | tuple | set | frozenset) and arguments:
        return all(_fits(item, arguments[0]) for item in value)
    if isinstance(value, dict) and arguments:
        return all(_fits(k, arguments[0]) and _fits(v, arguments[1]) for k, v in value.items())
    if dataclasses.is_dataclass(wanted):
        return all(_fits(getattr(value, name), hint) for name, hint in _hints(wanted).items())
    return True


@functools.cache
def _hints(record: type) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}
