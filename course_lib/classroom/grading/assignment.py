"""What was handed out: the pristine notebook of a lesson, and the program that an answer needs.

Of a submission only the text of its answers is used. Everything around them, imports and helpers,
comes from the notebook as it was handed out, and only the statements that the answer needs are run:
no demonstration, no other exercise. Names that the notebook does not have may come from cells that
the student added.
"""

import ast
import builtins
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nbformat import NotebookNode

from course_lib.checks.sandbox.answer_program import ANSWERS, Piece, Program, without_magics
from course_lib.checks.sandbox.slicing import names_of, statements
from course_lib.classroom.cell_ids import answer_id

_DEFINITIONS = (
    *(ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef),
    *(ast.Assign, ast.AnnAssign),
)


class Addition(NamedTuple):
    """The text of a code cell that the student wrote, and the place of the given one above it."""

    after: int
    source: str


@dataclass(frozen=True)
class Assignment:
    """The code cells of a student's notebook as it was handed out.

    answers: exercise -> the place of its cell in `cells`, in the order of the notebook.
    """

    name: str
    cells: tuple[str, ...]
    answers: Mapping[str, int]
    identities: tuple[str, ...]

    def stub(self, exercise: str) -> str:
        """The answer cell as a student finds it."""
        return self.cells[self.answers[exercise]]

    def is_untouched(self, exercise: str, answer: str) -> bool:
        """Whether an answer says no more than the stub, whatever its comments and spaces."""
        return answer.strip() == self.stub(exercise).strip() or (
            _dump(answer) == _dump(self.stub(exercise)) is not None
        )


def read_assignment(name: str, notebook: NotebookNode, exercises: Sequence[str]) -> Assignment:
    """From an untouched notebook. Raises `ValueError` for an exercise without a cell there."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    identities = tuple(cell.id for cell in code)
    places = {}
    for exercise in exercises:
        if answer_id(exercise) not in identities:
            raise ValueError(f"the notebook {name} has no cell {answer_id(exercise)}")
        places[exercise] = identities.index(answer_id(exercise))
    order = dict(sorted(places.items(), key=lambda place: place[1]))
    return Assignment(name, tuple(cell.source for cell in code), order, identities)


# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needed:
    """What is needed to run an answer.

    imports: what the notebook imports for it; notes: what the student should know of the choice.
    """

    program: Program
    imports: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    """A statement or a cell. `place` orders the parts; `given`: it was handed out."""

    place: tuple[int, int]
    file: str
    source: str
    given: bool


def assemble(
    assignment: Assignment,
    exercise: str,
    answers: Mapping[str, str],
    additions: Sequence[Addition] = (),
) -> Needed:
    """The program for one answer of a submission. `answers`: of all its exercises that have one."""
    folder = f"{ANSWERS}/{secrets.token_hex(8)}"  # only this run's reports show its lines
    own = assignment.answers[exercise]
    given = list(_given(assignment, answers, folder))
    added = list(_added(additions, folder))
    (target,) = (part for part in given if part.place == (own, 0))
    kept, waiting, notes = {target.place: target}, [target], []
    while waiting:
        part = waiting.pop()
        for name in sorted(_names(part.source).needed):
            found = _last(name, given, before=part.place if part.given else (own, 0))
            if found is None and not hasattr(builtins, name):
                end = (len(assignment.cells), 0)
                # A notebook's cells share their names, whatever their order.
                found = _last(name, added, before=end) or _last(name, given, before=end)
                if found and found.place not in kept:
                    notes.append(f"{name} is defined in another cell, which is used as well")
            if found and found.place not in kept:
                kept[found.place] = found
                waiting.append(found)
    stars = [part for part in added if _imports_all(part.source)]
    kept |= {part.place: part for part in stars}
    parts = [kept[place] for place in sorted(kept) if place != target.place]
    pieces = [Piece(part.file, part.source) for part in (*parts, target)]
    stubs = {(place, 0): assignment.cells[place] for place in assignment.answers.values()}
    as_released = [stubs.get(p.place, p.source) for p in kept.values() if p.given]
    imports = tuple(line for source in as_released for line in _imports(source))
    return Needed(Program(exercise, tuple(pieces)), imports, tuple(notes))


def _given(assignment: Assignment, answers: Mapping[str, str], folder: str) -> Iterator[_Part]:
    """The notebook's statements, with the student's answers in their places."""
    exercises = {place: name for name, place in assignment.answers.items()}
    for place, cell in enumerate(assignment.cells):
        if place in exercises:
            name = exercises[place]
            source = without_magics(answers.get(name, cell))
            yield _Part((place, 0), f"{folder}/{name}.py", source, True)
        else:
            for number, statement in enumerate(_definitions(cell), start=1):
                yield _Part((place, number), "/lesson/lesson.py", statement, True)


def _added(additions: Sequence[Addition], folder: str) -> Iterator[_Part]:
    """The definitions of cells that are not the notebook's. They run after the cell above them."""
    number = 10_000
    for addition in additions:
        for statement in _definitions(addition.source):
            number += 1
            yield _Part((addition.after, number), f"{folder}/cell.py", statement, False)


def _definitions(cell: str) -> list[str]:
    try:
        found = statements(without_magics(cell))
        return [s for s in found if isinstance(ast.parse(s).body[0], _DEFINITIONS)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _imports_all(source: str) -> bool:
    """Whether it is `from somewhere import *`, by which any name may come."""
    node = ast.parse(source).body[0]
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _last(name: str, parts: list[_Part], before: tuple[int, int]) -> _Part | None:
    """The last part above a place that binds a name."""
    found = [p for p in parts if p.place < before and name in _names(p.source).bound]
    return max(found, key=lambda part: part.place, default=None)


def _names(source: str):
    try:
        return names_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return names_of("")


def _imports(source: str) -> Iterator[str]:
    with_imports = ast.walk(ast.parse(without_magics(source)))
    for node in with_imports:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield ast.unparse(node)


def _dump(source: str) -> str | None:
    try:
        return ast.dump(ast.parse(without_magics(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
