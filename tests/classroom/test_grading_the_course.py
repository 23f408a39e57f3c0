"""The shipped lessons as submissions: solved, untouched, and one exercise at a time."""

from pathlib import Path

import nbformat
import pytest

from course_lib.checks.registry import all_exercises
from course_lib.classroom.grading import grade
from course_lib.classroom.grading.assignment import assemble, read_assignment
from course_lib.classroom.grading.points import PASSED, UNTOUCHED
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.untouched_notebooks import untouched
from tests.sampling import EVERY

ROOT = Path(__file__).resolve().parents[2]
LESSONS = [path.stem for path in sorted((ROOT / "solutions").glob("[0-9]*.ipynb"))]
EXERCISES = all_exercises()


@pytest.fixture(scope="module")
def release():
    return untouched(ROOT)


@pytest.mark.parametrize("lesson", LESSONS[::EVERY])
def test_each_exercise_counts_by_itself(one_grader, lesson, release, tmp_path):
    """One batch for all: an answer that occurs twice is run once.

    An answer that calls another one's function is handed in with that one.
    """
    names = [name for name, exercise in EXERCISES.items() if exercise.notebook == lesson]
    solution = nbformat.read(ROOT / "solutions" / f"{lesson}.ipynb", as_version=4)
    solved = {cell.id: cell.source for cell in solution.cells}
    answers = {name: solved[f"answer-{name}"[:60]] for name in names}
    assignment = read_assignment(lesson, release[lesson], names)
    alone = {name: _called(assemble(assignment, name, answers)) for name in names}

    def hand_in(student: str, filled: set[str]) -> None:
        notebook = nbformat.from_dict(release[lesson])
        for cell in notebook.cells:
            name = cell.id.removeprefix("answer-")
            if name in filled:
                cell.source = answers[name]
        (tmp_path / "in" / student).mkdir(parents=True)
        nbformat.write(notebook, tmp_path / "in" / student / f"{lesson}.ipynb")

    inputs = tmp_path / "report" / "verdicts" / "secret"  # the same in each run of this test
    inputs.parent.mkdir(parents=True)
    inputs.write_text("a secret")
    hand_in("everything", set(names))
    hand_in("nothing", set())
    for name, needed in alone.items():
        hand_in(f"only {name}", needed)
    graded = grade(tmp_path / "in", tmp_path / "report", release, EXERCISES, Settings([lesson]))
    reports = {report.student: report for report in graded.reports}
    messages = [r.message for r in reports["everything"].results if r.message]
    assert reports["everything"].points == sum(EXERCISES[name].points for name in names), messages
    assert reports["nothing"].points == 0
    for name, needed in alone.items():
        report = reports[f"only {name}"]
        assert report.points == sum(EXERCISES[n].points for n in needed), name
        for result in report.results:
            assert result.status == (PASSED if result.exercise in needed else UNTOUCHED)
    assert not graded.is_odd


def _called(needed) -> set[str]:
    """The exercises whose answers are part of a program."""
    files = [Path(piece.file) for piece in needed.program.pieces]
    return {file.stem for file in files if file.parts[1] == "answers"}
