"""The first page says what is passed and what comes next; the first notebook opens unchanged."""

import json
import shutil

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel

from course_lib.checks import progress
from course_lib.checks.registry import all_exercises
from course_lib.classroom.build_notebooks import Course
from course_lib.classroom.start_page import NAME, language, write_start_page


@pytest.fixture
def course(root, tmp_path):
    shutil.copytree(root / "notebooks", tmp_path / "notebooks")
    return tmp_path


def rows(page):
    return [line for line in page.splitlines() if ".ipynb) |" in line]


def test_a_new_learner_begins_with_the_first_lesson(course, root):
    page = write_start_page(course, all_exercises()).read_text(encoding="utf-8")
    counts = [int(row.rsplit(" ", 2)[-2]) for row in rows(page)]
    assert f"**0 of {sum(counts)} exercises passed.**" in page
    assert "Begin with [00 · " in page
    assert [row.split("](")[1].split(")")[0] for row in rows(page)] == [
        path.name for path in sorted((root / "notebooks").glob("*.ipynb"))
    ]
    assert rows(page)[0].startswith("| → | [00")
    assert all("minutes" in row for row in rows(page))


def test_what_is_passed_is_counted_and_the_next_is_named(course):
    exercises = all_exercises()
    first = [name for name, e in exercises.items() if e.notebook == "00_ranks"]
    notebook = json.loads((course / "notebooks" / "00_ranks.ipynb").read_text(encoding="utf-8"))
    answers = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    progress.note(
        course / "notebooks" / progress.FILE,
        {name: progress.fingerprint(answers[f"answer-{name}"[:60]], name) for name in first},
    )
    page = write_start_page(course, exercises).read_text(encoding="utf-8")
    assert f"**{len(first)} of " in page
    assert "exercises passed.** Next: [01 · " in page
    assert rows(page)[0].startswith("| ✓ | [00")


def test_the_next_notebook_names_this_python_and_is_not_stale_by_it(root, course):
    assert language() == {
        key: value for key, value in IPythonKernel.language_info.items() if key in language()
    }
    assert set(IPythonKernel.language_info) == set(language())
    shutil.copytree(root / "solutions", course / "solutions")
    ours = Course(course, all_exercises())
    before = list(ours.problems(["00_ranks"]))
    write_start_page(course, all_exercises())
    notebook = nbformat.read(course / "notebooks" / "00_ranks.ipynb", as_version=4)
    assert notebook.metadata.language_info == language()
    assert list(Course(course, all_exercises()).problems(["00_ranks"])) == before
    other = nbformat.read(course / "notebooks" / "01_parameter_server.ipynb", as_version=4)
    assert "version" not in other.metadata.language_info


def test_a_damaged_notebook_is_left_as_it_is(course):
    (course / "notebooks" / "00_ranks.ipynb").write_text("{", encoding="utf-8")
    assert write_start_page(course, all_exercises()).name == NAME
    assert (course / "notebooks" / "00_ranks.ipynb").read_text(encoding="utf-8") == "{"
