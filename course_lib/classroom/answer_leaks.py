"""Does a student's notebook, or anything else that learners can open, show an answer?

Two nets. As code: the statements of an answer, whatever their layout and comments. As text: a
line of an answer anywhere in the file, its metadata and outputs included.
"""

import ast
import json
from collections.abc import Iterator

from nbformat import NotebookNode

from .lesson import Lesson
from .strip_solutions import BEGIN, END, answers

# Below these a piece of an answer is a phrase of the language, such as `rank = dist.get_rank()`.
STATEMENTS_IN_A_ROW = 3
NODES = 20
CHARACTERS = 30


def answer_pieces(lesson: Lesson) -> dict[str, set[str]]:
    """Exercise -> dumps of what would give its answer away: blocks, and runs of statements."""
    return {
        cell.name: {piece for answer in answers(cell.source) for piece in _pieces(answer)}
        for cell in lesson.cells
        if cell.kind == "answer"
    }


def shown_as_code(source: str, pieces: dict[str, set[str]]) -> list[str]:
    """The exercises whose answer stands in this Python source, in part or whole."""
    try:
        found = set(_pieces(source))
    except SyntaxError:  # a cell with a magic in it
        lines = [line for line in source.split("\n") if not line.lstrip().startswith(("%", "!"))]
        found = set(_pieces("\n".join(lines)))
    return sorted(name for name, given in pieces.items() if given & found)


def leaks(notebook: NotebookNode, lesson: Lesson, pieces: dict[str, set[str]]) -> list[str]:
    """Sentences about what the student's `notebook` of `lesson` gives away.

    pieces: of the answers of all lessons, from `answer_pieces`.
    """
    found = []
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code":
            found += [
                f"cell {number} shows the answer of {n}" for n in shown_as_code(cell.source, pieces)
            ]
            if cell.outputs or cell.execution_count is not None:
                found.append(f"cell {number} has outputs")
    text = json.dumps(notebook, ensure_ascii=False)
    found += [f"{marker!r} is left" for marker in (BEGIN, END) if marker in text]
    for name, line in _telling_lines(lesson):
        if json.dumps(line, ensure_ascii=False)[1:-1] in text:
            found.append(f"a line of the answer of {name} is left: {line}")
    return found


def _pieces(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if not isinstance(statements, list):  # the body of a lambda is an expression
                continue
            statements = [s for s in statements if not _is_text(s)]
            dumps = [ast.dump(s) for s in statements]
            for start in range(len(dumps) - STATEMENTS_IN_A_ROW + 1):
                yield "\n".join(dumps[start : start + STATEMENTS_IN_A_ROW])
            for statement, dump in zip(statements, dumps, strict=True):
                if _size(statement) >= NODES:
                    yield dump


def _size(statement: ast.stmt) -> int:
    return sum(1 for node in ast.walk(statement) if not isinstance(node, ast.expr_context))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _telling_lines(lesson: Lesson) -> Iterator[tuple[str, str]]:
    visible = "\n".join(cell.student for cell in lesson.cells)
    for cell in lesson.cells:
        for answer in answers(cell.source) if cell.kind == "answer" else ():
            for line in map(str.strip, answer.split("\n")):
                if len(line) >= CHARACTERS and line not in visible:
                    yield cell.name, line
