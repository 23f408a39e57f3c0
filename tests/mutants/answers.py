"""The answers of the lessons as programs: what stands above an answer, and the answer itself."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course_lib.checks.exercise import Exercise
from course_lib.checks.sandbox.answer_program import without_magics
from course_lib.checks.sandbox.slicing import names_of, needed_statements
from course_lib.classroom.lesson import Lesson, read_lesson

SOLUTIONS = Path(__file__).parents[2] / "solutions"


@dataclass(frozen=True)
class Answer:
    """`above`: the statements of earlier cells that it needs; `cell`: its own; both are sources."""

    exercise: str
    above: str
    cell: str

    def defined(self, cell: str | None = None) -> Callable:
        """The function, with another cell instead of its own. Raises what the source raises."""
        namespace: dict = {"__name__": "__main__"}  # so it goes to the ranks by value
        exec(compile(self.above, "<above>", "exec"), namespace)
        exec(compile(self.cell if cell is None else cell, "<answer>", "exec"), namespace)
        return namespace[self.exercise]


def answer(exercise: Exercise) -> Answer:
    """The answer that its lesson gives."""
    cells = [cell for cell in _lesson(exercise.notebook).cells if cell.is_code]
    index = next(i for i, c in enumerate(cells) if c.kind == "answer" and c.name == exercise.name)
    own = without_magics(cells[index].source)
    earlier = "\n".join(without_magics(cell.source) for cell in cells[:index])
    # An earlier check or run is no definition; what binds a name that the answer uses is.
    return Answer(
        exercise.name, needed_statements(earlier, names_of(own).needed), ast.unparse(ast.parse(own))
    )


@cache
def _lesson(name: str) -> Lesson:
    return read_lesson(SOLUTIONS / f"{name}.py")
