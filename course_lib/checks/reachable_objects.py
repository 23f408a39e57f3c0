"""What an answer reaches: what its code names, and what it has kept for its next call to find."""

import functools
import gc
import itertools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from course_lib.observe.frames import is_learners

Found = tuple[str, Any]
"""Something, and where it is found: "_CACHE['mask']"; "" for the answer itself."""

_MOST = 1000  # entries of one container that are looked at
_CACHES = frozenset({"_lru_cache_wrapper", "_lru_list_elem"})  # in which functools keeps results


def reached_from(answer: Callable) -> Iterator[Found]:
    """The answer, and all that lies behind it, each once.

    Followed are the globals that the learner's own code names, closures, defaults, attributes,
    containers, caches of functools, and the learner's own classes and their objects.
    """
    seen: set[int] = set()
    waiting: deque[Found] = deque([("", answer)])
    while waiting:
        where, value = waiting.popleft()
        if id(value) not in seen:
            seen.add(id(value))
            yield where, value
            waiting.extend(_behind(where, value))


def is_own_function(value: Any) -> bool:
    """Whether it is a function whose lines are the learner's."""
    return isinstance(value, types.FunctionType) and is_learners(value.__code__.co_filename)


def with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of all functions that are made in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from with_inner(constant)


def _behind(where: str, value: Any) -> Iterator[Found]:
    if isinstance(value, functools.partial):
        yield where, value.func
        yield from _items(where, value.keywords.items())
        yield from _items(where, enumerate(value.args))
    elif isinstance(value, staticmethod | classmethod | types.MethodType):
        yield where, value.__func__
        yield where, getattr(value, "__self__", None)
    elif isinstance(value, types.FunctionType):
        yield from _behind_function(value)
    elif type(value).__name__ in _CACHES:
        yield from ((where, each) for each in gc.get_referents(value))
    elif isinstance(value, Mapping):
        yield from _items(where, value.items())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from _items(where, enumerate(value))
    elif isinstance(value, type):
        yield from ((f"{value.__name__}.{name}", each) for name, each in _members(value))
    elif _members(type(value)):
        yield from ((f"{where}.{name}", each) for name, each in list(vars(value).items()))
        yield where, type(value)


def _items(where: str, pairs: Iterable[tuple[Any, Any]]) -> list[Found]:
    some = itertools.islice(list(pairs), _MOST)
    return [(f"{where}[{key!r:.40}]", item) for key, item in some]


def _behind_function(function: types.FunctionType) -> Iterator[Found]:
    if not is_own_function(function):
        return
    code, name = function.__code__, function.__name__
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if _is_filled(cell):
            yield variable, cell.cell_contents
    for variable in dict.fromkeys(name for inner in with_inner(code) for name in inner.co_names):
        if variable in function.__globals__:
            yield variable, function.__globals__[variable]
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    yield from ((f"{name}.{attribute}", each) for attribute, each in vars(function).items())


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises where there is nothing yet
    except ValueError:
        return False
    return True


def _members(kind: type) -> list[Found]:
    """Those of a class of the learner's own; [] for another."""
    members = list(vars(kind).items())
    own = any(is_own_function(getattr(each, "__func__", each)) for _, each in members)
    return members if own else []
