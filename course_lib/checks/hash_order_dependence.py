"""Whether an answer goes by hashes: the line where it makes a set, or asks for a hash.

The order of a set of names and the hash of a text differ from process to process, and so do the
addresses that all else goes by (`laws.hash_order`). Looked at is the code, since nothing tells when
a set is gone through. A set that is only asked what is in it is found as well: it costs a run.
"""

import dis
import linecache
import types
from collections.abc import Callable, Iterable

from .reachable_objects import is_own_function, reached_from, with_inner

_NAMES = frozenset({"set", "frozenset", "hash", "__hash__"})
_MAKE_SETS = frozenset({"BUILD_SET", "SET_ADD", "SET_UPDATE"})
_BETWEEN_SETS = frozenset("&|-^")


def line_of_function(answer: Callable) -> str:
    """The first such line of a function, or of what it uses of the learner's own; "" for none."""
    functions = (value for _, value in reached_from(answer) if is_own_function(value))
    codes = (code for function in functions for code in with_inner(function.__code__))
    return next(filter(None, map(_line, codes)), "")


def line_of_sources(sources: Iterable[str]) -> str:
    """The first such line in pieces of a program; "" for none."""
    for source in sources:
        try:
            code = compile(source, "<piece>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue  # its cell says so
        lines = source.splitlines()
        for inner in with_inner(code):
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
