"""Answers that are the same up to names, comments and layout: a list to look at, and no verdict.

Syntax trees are compared, in which every name that the answer itself binds is replaced by a number,
in order of appearance. Not listed are answers that equal the course's own, since everybody may come
to think of it, and those that add little to the code they were given.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.checks.sandbox.answer_program import without_magics

_FEWEST = 30  # nodes of the tree, over those of the stub; below, equal answers say little


@dataclass(frozen=True)
class Similar:
    """Students whose answers to these exercises are the same."""

    students: tuple[str, ...]
    exercises: tuple[str, ...]


def similar_answers(
    answers: Mapping[str, Mapping[str, str]], stubs: Mapping[str, str], own: Mapping[str, str]
) -> list[Similar]:
    """Groups of students, those with most answers in common first.

    answers: student -> exercise -> source; stubs: exercise -> what was handed out; own: exercise ->
    the course's answer, where it is known.
    """
    alike: dict[tuple[str, str], list[str]] = {}
    given = {exercise: _size(stub) for exercise, stub in stubs.items()}
    courses = {exercise: shape(source) for exercise, source in own.items()}
    for student, of_student in answers.items():
        for exercise, source in of_student.items():
            form = shape(source)
            added = _size(source) - given.get(exercise, 0)
            if form and form != courses.get(exercise) and added >= _FEWEST:
                alike.setdefault((exercise, form), []).append(student)
    groups: dict[tuple[str, ...], list[str]] = {}
    for (exercise, _), students in alike.items():
        if len(students) > 1:
            groups.setdefault(tuple(students), []).append(exercise)
    found = [Similar(students, tuple(exercises)) for students, exercises in groups.items()]
    return sorted(found, key=lambda each: (-len(each.exercises), len(each.students)))


def shape(source: str) -> str:
    """What is left without names, comments, docstrings, annotations; "" if it is no code."""
    tree = _parsed(source)
    return ast.dump(_Renamed(_bound(tree)).visit(tree)) if tree else ""


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(without_magics(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _size(source: str) -> int:
    tree = _parsed(source)
    return sum(1 for _ in ast.walk(tree)) if tree else 0


def _bound(tree: ast.Module) -> frozenset[str]:
    """Names that the answer binds itself; those of torch and the notebook stay."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


class _Renamed(ast.NodeTransformer):
    """Bound names become numbers, in order of appearance."""

    def __init__(self, bound: frozenset[str]):
        self._bound = bound
        self._numbers: dict[str, str] = {}

    def _number(self, name: str) -> str:
        if name not in self._bound:
            return name
        return self._numbers.setdefault(name, f"_{len(self._numbers)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._number(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._number(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign([self.visit(node.target)], self.visit(node.value))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = self._number(node.name), None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._number(node.name)
        return self.generic_visit(node)
