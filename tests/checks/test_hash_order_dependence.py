"""Where an answer goes by hashes."""

import functools

import pytest

from course_lib.checks import hash_order_dependence


def of_a_set(model):
    names = {name for name, _ in model}
    return list(names)


def of_two_keys(one, other):
    return list(one.keys() - other.keys())


def by_another(model):
    def inner():
        return of_a_set(model)

    return inner


class Kept:
    def __init__(self):
        self.seen = frozenset("ab")


def by_a_class():
    return Kept()


def by_itself(n):
    return by_itself(n - 1) if n else hash("text")


def of_a_constant_set(model):
    return [name for name in model if name in {"a", "b"}]


def of_a_dict(model):
    return {name: 1 - size for name, size in model.items()}


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (of_a_set, "names = {name for name, _ in model}"),
        (of_two_keys, "return list(one.keys() - other.keys())"),
        (by_another, "names = {name for name, _ in model}"),
        (by_a_class, 'self.seen = frozenset("ab")'),
        (by_itself, 'return by_itself(n - 1) if n else hash("text")'),
        (functools.partial(of_a_set, []), "names = {name for name, _ in model}"),
        (of_a_constant_set, ""),
        (of_a_dict, ""),
        (len, ""),
    ],
)
def test_the_line_of_a_function(answer, line):
    assert hash_order_dependence.line_of_function(answer) == line


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        (["x = 1", "def f(a):\n    return list(set(a))"], "return list(set(a))"),
        (["def f(a):\n    return a +", "y = {*'ab'}"], "y = {*'ab'}"),
        (["def f(a):\n    return sorted(a)"], ""),
    ],
)
def test_the_line_of_a_program(sources, line):
    assert hash_order_dependence.line_of_sources(sources) == line
