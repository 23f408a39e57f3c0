"""No answer reaches a learner: not as code, not in metadata or outputs, not in the library."""

import nbformat
import pytest

from course_lib.classroom.answer_leaks import answer_pieces, leaks, shown_as_code
from course_lib.classroom.student_notebook import student_notebook

LONG_ANSWER = """\
    total = 0
    for step in range(x):
        total = total + 2 if step >= 0 else total - 2
    return total
"""
SHORT_ANSWER = """\
    twice_the_argument_by_addition = x + x
    return twice_the_argument_by_addition
"""


@pytest.fixture
def lesson(write):
    return write(SHORT_ANSWER, LONG_ANSWER).lessons["01_double"]


@pytest.fixture
def student(lesson):
    return student_notebook(lesson, {"double": 1})


def found(notebook, lesson):
    return leaks(notebook, lesson, answer_pieces(lesson))


def test_a_clean_notebook_leaks_nothing(student, lesson):
    assert found(student, lesson) == []


@pytest.mark.parametrize(
    "code",
    [
        "def helper(x):\n" + LONG_ANSWER,
        # Another layout, other comments.
        "if True:\n    for step in range( x ):  # sneaky\n"
        "        total = (total + 2) if step>=0 else (total - 2)",
        "%%time\ndef helper(x):\n" + LONG_ANSWER,
    ],
)
def test_an_answer_shown_as_code_is_found(student, lesson, code):
    student.cells.append(nbformat.v4.new_code_cell(code))
    assert f"cell {len(student.cells)} shows the answer of double" in found(student, lesson)


@pytest.mark.parametrize("code", ["total = 0", "for step in range(x):\n    print(step)", "return"])
def test_a_phrase_of_the_language_is_no_answer(lesson, code):
    wrapped = f"def f(x):\n    {code}" if code == "return" else code
    assert shown_as_code(wrapped, answer_pieces(lesson)) == []


@pytest.mark.parametrize(
    "spill",
    [
        lambda nb, line: nb.metadata.update(kept={"source": line}),
        lambda nb, line: nb.cells[0].metadata.update(old=[line]),
        lambda nb, line: nb.cells.append(nbformat.v4.new_markdown_cell(f"Like so: {line}")),
    ],
)
def test_a_line_of_an_answer_is_found_anywhere(student, lesson, spill):
    line = "total = total + 2 if step >= 0 else total - 2"
    spill(student, line)
    assert found(student, lesson) == [f"a line of the answer of double is left: {line}"]


def test_outputs_and_markers_are_found(student, lesson):
    student.cells[1].outputs = [nbformat.v4.new_output("stream", text="84")]
    student.cells[2].source += "\n    ### BEGIN SOLUTION"
    assert found(student, lesson) == ["cell 2 has outputs", "'### BEGIN SOLUTION' is left"]


def test_a_lesson_that_shows_an_answer_is_not_built(write):
    shown = f"# %%\ndef shown(x):\n{LONG_ANSWER}\n# %% exercise="
    course = write("# %% exercise=", shown)
    source = course.root / "solutions/01_double.py"
    source.write_text(source.read_text().replace(SHORT_ANSWER, LONG_ANSWER))
    (problem,) = course.build(execute=True)
    assert str(problem) == "notebooks/01_double.ipynb: cell 3 shows the answer of double"
    assert not (course.root / "notebooks").exists()
