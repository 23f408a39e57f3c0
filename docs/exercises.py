"""Write the page of all exercises, docs/exercises.md: `python -m docs.exercises`.

What to write comes from the lesson's cells, what is enforced from the contract of the check.
"""

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from course_lib.checks.contract import GENERAL
from course_lib.checks.exercise import Exercise
from course_lib.checks.registry import all_exercises
from course_lib.classroom.build_notebooks import Course
from course_lib.classroom.lesson import Lesson

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "exercises.md"
_HEAD = f"""\
# All exercises

{
    textwrap.fill(
        "What to write, and what is enforced. `python -m docs.exercises` writes this page from the "
        "lessons and from the contracts of the checks. ● is a few lines, ●● are two ideas "
        "together, ●●● is the hard one.",
        100,
    )
}

{textwrap.fill(GENERAL, 100)}
"""


def page(course: Course) -> str:
    """The whole page, lesson by lesson."""
    return "\n".join([_HEAD, *(_section(lesson, course) for lesson in course.lessons.values())])


def _section(lesson: Lesson, course: Course) -> str:
    texts = [cell.source for cell in lesson.cells if cell.kind == "markdown"]
    title = texts[0].splitlines()[0].lstrip("# ")
    lines = [f"## [{title}](../notebooks/{lesson.name}.ipynb)", ""]
    for cell in lesson.cells:
        if cell.kind == "answer":
            exercise = course.exercises[cell.name]
            assert isinstance(exercise, Exercise)  # the classroom needs to know less of it
            lines += _entry(cell.source, cell.name, "\n".join(texts), exercise)
    return "\n".join(lines)


def _entry(source: str, name: str, text: str, exercise: Exercise) -> Iterator[str]:
    function = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    effort = re.search(rf"`{name}` \((●+ \d+ minutes)\)", text)
    said = ast.get_docstring(function) or ""
    contract = exercise.contract
    points = "1 point" if exercise.points == 1 else f"{exercise.points} points"
    yield f"### `{name}({ast.unparse(function.args)})`"
    yield ""
    yield f"{effort[1] if effort else ''}, {points}".lstrip(", ")
    yield ""
    yield from textwrap.wrap(" ".join(said.split()), 100)
    yield ""
    arguments = f"Arguments: {contract.arguments}" if contract.arguments else ""
    enforced = [arguments, contract.text, contract.freedom, f"Passed means: {exercise.passed}."]
    yield from textwrap.wrap(" ".join(filter(None, enforced)), 100)
    yield ""


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or say whether it is stale."""
    parser = argparse.ArgumentParser(prog="python -m docs.exercises", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if it is stale")
    options = parser.parse_args(arguments)
    text = page(Course(ROOT, all_exercises()))
    if options.check:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("" if fresh else "docs/exercises.md is stale: run `python -m docs.exercises`")
        return 0 if fresh else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
