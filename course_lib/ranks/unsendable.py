"""What of a call cannot be sent to the ranks, or is large: found by name, line and type."""

import dis
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from course_lib.text import listed

from . import serialization

LARGE = 50 * 10**6  # bytes of a call that are worth a remark
_DEEPEST = 6
_WORDS = {"lock": "a lock", "RLock": "a lock", "TextIOWrapper": "an open file"}


@dataclass(frozen=True)
class Part:
    """Something that goes with a function. line: where the function uses it; 0 for an argument."""

    name: str
    value: Any
    line: int = 0

    def __str__(self) -> str:
        return f"`{self.name}` in line {self.line}" if self.line else f"the argument `{self.name}`"


def culprit(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> str:
    """ "`lk` in line 3 is a lock": the innermost part that cannot be sent; "" if none is found."""
    found = _inside(_parts_of_call(fn, args, kwargs), {id(fn)}, 0)
    return f"{found} is {_kind(found.value)}" if found else ""


def large_parts(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> str:
    """`data` in line 4 (80 MB) and ...: what makes a call large, the largest first."""
    sizes: dict[str, int] = {}
    for part in _parts_of_call(fn, args, kwargs):
        size = len(serialization.pack(part.value))
        if size > LARGE // 10:
            sizes[str(part)] = max(size, sizes.get(str(part), 0))
    ranked = sorted(sizes, key=sizes.__getitem__, reverse=True)
    return listed(f"{name} ({sizes[name] / 1e6:.0f} MB)" for name in ranked[:5]) if ranked else ""


def _inside(parts: Iterator[Part], seen: set[int], depth: int) -> Part | None:
    for part in parts:
        if id(part.value) in seen or depth > _DEEPEST or _can_be_sent(part.value):
            continue
        seen.add(id(part.value))
        return _inside(_parts(part), seen, depth + 1) or part
    return None


def _can_be_sent(value: Any) -> bool:
    try:
        serialization.pack(value)
    except Exception:
        return False
    return True


def _parts_of_call(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Iterator[Part]:
    for number, value in enumerate(args):
        yield Part(str(number + 1), value)
    for name, value in kwargs.items():
        yield Part(name, value)
    yield from _parts(Part(getattr(fn, "__name__", "the function"), fn))


def _parts(part: Part) -> Iterator[Part]:
    """What `part` is made of, as far as it is known how to look inside."""
    name, value, line = part.name, part.value, part.line
    if isinstance(value, functools.partial):
        yield from (Part(name, each, line) for each in (value.func, *value.args))
        yield from (Part(key, each, line) for key, each in value.keywords.items())
    elif isinstance(value, types.MethodType):
        yield Part(name, value.__self__, line)
        yield Part(name, value.__func__, line)
    elif isinstance(value, types.FunctionType):
        yield from _used_by(value)
    elif isinstance(value, dict):
        yield from (Part(f"{name}[{key!r}]", each, line) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from (Part(f"{name}[{place}]", each, line) for place, each in enumerate(value))
    elif isinstance(value, type):
        for key, each in vars(value).items():
            if isinstance(each, types.FunctionType):
                yield Part(f"{name}.{key}", each, line)
    elif hasattr(value, "__dict__"):
        yield from (Part(f"{name}.{key}", each, line) for key, each in vars(value).items())


def _used_by(fn: types.FunctionType) -> Iterator[Part]:
    """The variables from outside that the code of `fn` uses, where it first does."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False))
    for name, line in _names(fn.__code__).items():
        if name in cells:
            try:
                yield Part(name, cells[name].cell_contents, line)
            except ValueError:  # not given a value yet
                continue
        elif name in fn.__globals__:
            yield Part(name, fn.__globals__[name], line)
    for default in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
        yield Part(fn.__name__, default, fn.__code__.co_firstlineno)


def _names(code: types.CodeType) -> dict[str, int]:
    """Variables from outside, with the line of their first use; functions inside count as well."""
    found: dict[str, int] = {}
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = getattr(instruction.positions, "lineno", None) or line
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")):
            found.setdefault(instruction.argval, line)
        elif isinstance(instruction.argval, types.CodeType):
            for name, inner in _names(instruction.argval).items():
                found.setdefault(name, inner)
    return found


def _kind(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return _WORDS.get(kind, f"{article} {kind}")
