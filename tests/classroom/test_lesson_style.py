"""What every lesson keeps to: docs/style.md, as far as a test can tell."""

import re

import pytest

from course_lib.checks.registry import all_exercises
from course_lib.classroom.build_notebooks import Course

BESIDE = 3  # cells: how far behind "Predict" the cell to write into may stand
SITTING = 90  # minutes: what a lesson may take, without what is optional
WORDS = 200  # read in a minute


@pytest.fixture(scope="module")
def lessons(root):
    return Course(root, all_exercises()).lessons


def texts(lesson):
    return [cell.source for cell in lesson.cells if cell.kind == "markdown"]


def test_a_prediction_has_a_cell_to_write_into(lessons):
    missing = []
    for name, lesson in lessons.items():
        for at, cell in enumerate(lesson.cells):
            if cell.kind == "markdown" and "**Predict.**" in cell.source:
                behind = [other.kind for other in lesson.cells[at + 1 : at + 1 + BESIDE]]
                if "prediction" not in behind:
                    missing.append((name, cell.source[cell.source.index("**Predict") :][:60]))
    assert missing == []


def test_every_guess_is_printed_beside_what_came_out(lessons):
    for name, lesson in lessons.items():
        written = {
            guess
            for cell in lesson.cells
            if cell.kind == "prediction"
            for guess in re.findall(r"^(guess_\w+) =", cell.source, re.M)
        }
        code = "\n".join(cell.source for cell in lesson.cells if cell.kind == "code")
        printed = set(re.findall(r"guess_\w+", " ".join(re.findall(r"guessed\([^)]*\)", code))))
        assert written == printed, name


def test_an_exploration_has_answers(lessons):
    for name, lesson in lessons.items():
        for at, cell in enumerate(lesson.cells):
            if cell.kind == "markdown" and "**Explore.**" in cell.source:
                if "?" not in cell.source.split("**Explore.**")[1].split("\n\n")[0]:
                    continue
                near = "".join(c.source for c in lesson.cells[at : at + 3])
                assert "<details>" in near, (name, cell.source[:60])


def test_an_answer_stands_under_its_numbered_question(lessons):
    """Indented like its text, or it would end the list."""
    for name, lesson in lessons.items():
        for text in texts(lesson):
            ended = re.findall(r"(?m)^(\d+\. .*(?:\n +.*)*)\n\n<details>", text)
            assert ended == [], name


def shows_a_figure(cell, views):
    """Whether a code cell ends with a picture."""
    if cell.kind != "code":
        return False
    statements = re.findall(r"(?m)^(\w+)\(", cell.source)
    return bool(statements) and statements[-1] in views


def test_a_figure_has_a_message(lessons):
    """Text follows that is no heading, unless questions about it stand above."""
    silent = []
    for name, lesson in lessons.items():
        code = "\n".join(cell.source for cell in lesson.cells if cell.kind == "code")
        views = {*re.findall(r"from course_lib\.views\.\w+ import (\w+)", code), "explore"}
        for at, cell in enumerate(lesson.cells):
            if shows_a_figure(cell, views):
                texts_after = [c.source for c in lesson.cells[at + 1 :] if c.kind == "markdown"]
                asked = "**Explore.**" in lesson.cells[at - 1].source
                if not asked and texts_after[0].startswith("#"):
                    silent.append((name, cell.source[-60:]))
    assert silent == []


def test_every_exercise_says_how_hard_it_is_and_how_long_it_takes(lessons):
    for name, lesson in lessons.items():
        said = "\n".join(texts(lesson))
        for exercise in lesson.named("answer"):
            pattern = rf"^##+ .*`{exercise}` \(●{{1,3}} \d+ minutes\)$"
            assert re.search(pattern, said, re.M), (name, exercise)


def minutes_needed(lesson, last):
    """Of sections 1 to `last`: reading, predictions, and exercises that are not optional."""
    needed, section = 0.0, 0
    for cell in lesson.cells:
        for part in re.split(r"(?m)^(?=#+ )", cell.source) if cell.kind == "markdown" else ():
            if heading := re.match(r"## (\d+)\. ", part):
                section = int(heading[1])
            if section not in range(1, last + 1) or "Assignment" in part.split("\n")[0]:
                continue
            needed += len(part.split()) / WORDS
            exercise = re.match(r"#+ .*\(●+ (\d+) minutes\)", part)
            if exercise and "(Optional.)" not in part:
                needed += int(exercise[1])
        needed += cell.kind == "prediction" and section in range(1, last + 1)
    return needed


def test_a_lesson_fits_into_the_time_that_it_states(lessons):
    for name, lesson in lessons.items():
        said = " ".join("\n".join(texts(lesson)).split())
        stated = re.search(r"\*\*It takes\*\* (\d+) minutes(?: to the end of section (\d+))?", said)
        assert stated, name
        needed = minutes_needed(lesson, int(stated[2] or 99))
        assert needed <= int(stated[1]) <= SITTING, (name, needed, stated[0])


def test_papers_are_links(lessons):
    for name, lesson in lessons.items():
        for text in texts(lesson):
            assert not re.search(r"(?<!\[)arXiv \d{4}\.\d{4,5}", text), name


def test_no_line_turns_into_a_list_by_accident(lessons):
    for name, lesson in lessons.items():
        for text in texts(lesson):
            prose = re.sub(r"(?s)```.*?```|\$\$.*?\$\$", "", text)
            for before, line in zip(prose.split("\n"), prose.split("\n")[1:], strict=False):
                starts = re.match(r"[+*-] ", line)
                listed = not before.strip() or re.match(r"\s*([*-]|\d+\.) |\s{2,}\S", before)
                assert not starts or listed, (name, line)
