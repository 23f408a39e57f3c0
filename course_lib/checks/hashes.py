"""Whether an answer goes by hashes: the line where it makes a set, or asks for a hash.

The order of a set of names and the hash of a text differ from process to process, and so do the
addresses that all else goes by (`laws.hash_order`). Looked at is the code, since nothing tells when
a set is gone through. A set that is only asked what is in it is found as well: it costs a run.
"""

import dis
import functools
import linecache
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from course_lib.observe.frames import is_learners

_NAMES = frozenset({"set", "frozenset", "hash", "__hash__"})
_MAKE_SETS = frozenset({"BUILD_SET", "SET_ADD", "SET_UPDATE"})
_BETWEEN_SETS = frozenset("&|-^")


def line_of_function(answer: Callable) -> str:
    """The first such line of a function, or of what it uses of the learner's own; "" for none."""
    return next(filter(None, map(_line, _codes_of(answer, set()))), "")


def line_of_sources(sources: Iterable[str]) -> str:
    """The first such line in pieces of a program; "" for none."""
    for source in sources:
        try:
            code = compile(source, "<piece>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue  # its cell says so
        lines = source.splitlines()
        for inner in _with_inner(code):
            if number := _line_number(inner):
                return lines[number - 1].strip()
    return ""


def _line(code: types.CodeType) -> str:
    number = _line_number(code)
    source = linecache.getline(code.co_filename, number) if number else ""
    return source.strip() or (f"line {number}" if number else "")


def _line_number(code: types.CodeType) -> int:
    """0 where nothing goes by a hash."""
    keys = "keys" in code.co_names  # what stands between two of them makes a set
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno or line if instruction.positions else line
        makes = instruction.opname in _MAKE_SETS or instruction.argval in _NAMES
        if makes or (keys and instruction.argrepr in _BETWEEN_SETS):
            return line
    return 0


def _codes_of(value: Any, seen: set[int]) -> Iterator[types.CodeType]:
    """The code of a function or class, and of the learner's own that it names or holds."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, functools.partial):
        yield from _codes_of(value.func, seen)
    elif isinstance(value, type):
        for member in vars(value).values():
            yield from _codes_of(member, seen)
    elif isinstance(value, staticmethod | classmethod | types.MethodType):
        yield from _codes_of(value.__func__, seen)
    elif isinstance(value, types.FunctionType) and is_learners(value.__code__.co_filename):
        codes = list(_with_inner(value.__code__))
        yield from codes
        cells = (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
        named = (value.__globals__.get(name) for code in codes for name in code.co_names)
        for other in (*cells, *named):
            yield from _codes_of(other, seen)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises where there is nothing yet
    except ValueError:
        return False
    return True


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)
