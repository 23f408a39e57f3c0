"""An answer as text: the pieces of a notebook that define it, run in order, and the function found.

A notebook's cells share one namespace, and so do the pieces. A cell that raises half-way has still
defined what stands above, there as here.
"""

import __future__

import ast
import linecache
import re
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass

ANSWERS = "/answers"  # where answers seem to lie; a report shows only lines from there


@dataclass(frozen=True)
class Piece:
    """Some source, and the name of the file that its frames are to show."""

    file: str
    source: str


@dataclass(frozen=True)
class Program:
    """`pieces` in the order in which they run, and the `name` that they define between them."""

    name: str
    pieces: tuple[Piece, ...]


class Undefined(Exception):
    """The pieces do not define a function of the name; the message says why."""


_UNREAD_ANNOTATIONS = __future__.annotations.compiler_flag
_MAGIC = re.compile(r"\s*[%!?]|.*\?\s*$")
_MAGIC_RESULT = re.compile(r"(\s*[\w., ]+=\s*)[%!].*")


def without_magics(source: str) -> str:
    """The source without IPython's own lines (`%time`, `!ls`, `f?`), line numbers kept.

    What is Python as it stands stays as it is, a text with such a line in it included.
    """
    if _is_python(source):
        return source
    lines = source.split("\n")
    plain = [_MAGIC_RESULT.sub(r"\1None", line) for line in lines]
    return "\n".join(re.sub(r"\S.*", "pass", x) if _MAGIC.match(x) else x for x in plain)


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def keep_lines(program: Program) -> None:
    """Let reports in this process show the lines of the program."""
    for piece in program.pieces:
        lines = [line + "\n" for line in piece.source.split("\n")]
        linecache.cache[piece.file] = (len(piece.source), None, lines, piece.file)


def define(program: Program) -> Callable:
    """Run the pieces; returns the function. Raises `Undefined`."""
    keep_lines(program)
    namespace = _namespace()
    troubles = []
    for piece in program.pieces:
        try:
            # Annotations are not looked up: they may use names that only the notebook has.
            code = compile(piece.source, piece.file, "exec", _UNREAD_ANNOTATIONS, True)
            exec(code, namespace)
        except BaseException as problem:  # SystemExit ends a cell, and not the check
            troubles.append(_sentence(problem, piece))
    found = namespace.get(program.name)
    if isinstance(found, types.FunctionType) or (callable(found) and not isinstance(found, type)):
        return found
    if troubles:
        raise Undefined("; ".join(troubles))
    if found is None:
        raise Undefined(f"no function of the name {program.name} is defined in its cell")
    raise Undefined(f"{program.name} is {type(found).__name__}, and not a function")


def _namespace() -> dict:
    """What a cell finds. Answers may call check and hint below the function: here they do nothing.

    The module is __main__, as in a notebook, so that functions go to the ranks by value.
    """
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    course = sys.modules["course_lib"]
    for name in ("check", "hint"):
        vars(main)[name] = vars(course)[name] = lambda *_, **__: None
    return vars(main)


def _sentence(problem: BaseException, piece: Piece) -> str:
    """The kind of the exception, its message, and its line in the piece."""
    if isinstance(problem, SyntaxError):
        line, message = problem.lineno, problem.msg
    else:
        steps = traceback.extract_tb(problem.__traceback__)
        line = next((step.lineno for step in reversed(steps) if step.filename == piece.file), None)
        message = str(problem)
    where = f"line {line} of its cell" if line else "its cell"
    return f"{where} raises {type(problem).__name__}: {message}".removesuffix(": ")
