"""Sources are read as their authors mean them, and mistakes are named with their cell."""

import pytest

from course_lib.classroom import LessonError, read_lesson
from course_lib.classroom.strip_solutions import answers, with_blanks, with_stubs


def test_cells_know_what_they_are_for(write):
    lesson = write().lessons["01_double"]
    assert [cell.kind for cell in lesson.cells] == [
        *("markdown", "code", "answer", "check", "prediction", "code", "code", "code")
    ]
    assert lesson.named("answer") == lesson.named("check") == ["double"]
    assert lesson.cells[-1].tags == ("raises-exception",)


def test_a_function_is_cut_down_to_its_promise(write):
    (answer,) = [cell for cell in write().lessons["01_double"].cells if cell.kind == "answer"]
    assert answer.student == (
        'def double(x):\n    """Twice `x`."""\n    raise NotImplementedError("not attempted yet")'
    )
    assert answers(answer.source) == [
        "twice_the_argument_by_addition = x + x\nreturn twice_the_argument_by_addition"
    ]


def test_what_stands_around_and_between_answers_stays():
    source = "\n".join(
        [
            "def f(x):",
            "    y = x",
            "    ### BEGIN SOLUTION",
            "    y += 1",
            "",
            "    y += 2",
            "    ### END SOLUTION",
            "    for _ in range(y):",
            "        ### BEGIN SOLUTION",
            "        y -= 1",
            "        ### END SOLUTION",
            "    return y",
        ]
    )
    assert with_stubs(source).split("\n") == [
        "def f(x):",
        "    y = x",
        '    raise NotImplementedError("not attempted yet")',
        "    for _ in range(y):",
        '        raise NotImplementedError("not attempted yet")',
        "    return y",
    ]
    assert answers(source) == ["y += 1\n\ny += 2", "y -= 1"]


def test_predictions_become_blanks():
    source = "### BEGIN SOLUTION\nfirst = max(\n    1, 2\n)\nsecond = {}\n### END SOLUTION\nshow()"
    assert with_blanks(source) == "first = ...\nsecond = ...\nshow()"


@pytest.mark.parametrize("statement", ["x.y = 1", "a, b = 1, 2", "print(1)", "x += 1"])
def test_a_prediction_is_an_assignment(statement):
    with pytest.raises(ValueError, match="a prediction assigns to single names"):
        with_blanks(f"### BEGIN SOLUTION\n{statement}\n### END SOLUTION")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("    ### END SOLUTION\n", "", "'### BEGIN SOLUTION' without '### END SOLUTION'"),
        ("    ### BEGIN SOLUTION\n", "", "'### END SOLUTION' without '### BEGIN SOLUTION'"),
        ("guess = 84", "### BEGIN SOLUTION", "stands inside another answer"),
        ("def double", "def triple", "must define a function of that name"),
        ("check(double)", "check(doubles)", "must call check(double)"),
        ('exercise="double"', 'exercize="double"', "exercise, check and tags, and not exercize"),
        ("raises-exception", "raises-exceptions", "unknown tag raises-exceptions"),
        ('check="double"', 'check="double" tags=["nbval-skip"]', "may not fail: no tags"),
        (
            "# Twice",
            "# ### BEGIN SOLUTION\n# ### END SOLUTION\n# Twice",
            "only a code cell can hold",
        ),
        ("# %%\ndef check", "# %% [raw]\ndef check", "no raw cells"),
    ],
)
def test_a_mistake_is_named_with_its_cell(write, old, new, sentence):
    with pytest.raises(LessonError) as caught:
        write(old, new).lessons  # noqa: B018
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("01_double.py, cell ")


def test_an_exercise_without_an_answer_is_named(write):
    unmarked = write().root / "solutions/01_double.py"
    text = unmarked.read_text()
    text = text.replace("    ### BEGIN SOLUTION\n", "").replace("    ### END SOLUTION\n", "")
    unmarked.write_text(text)
    with pytest.raises(LessonError, match="the answer to double needs markers around it"):
        read_lesson(unmarked)
