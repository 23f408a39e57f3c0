"""What platforms import, parts on several machines, and how the rest of a batch is foretold."""

import csv
import json
import os

import nbformat
import pytest

from course_lib.classroom.__main__ import _duration, _part, _Progress, main
from course_lib.classroom.grading import grade
from course_lib.classroom.grading.batch import Graded
from course_lib.classroom.grading.points import FAILED, PASSED, Deadline, Report, Result
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.grading.score_tables import canvas, gradescope, moodle
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny


@pytest.fixture
def graded() -> Graded:
    def results(points: float) -> list[Result]:
        status = PASSED if points else FAILED
        message = "" if points else "double does not pass yet"
        return [
            Result("01_tiny", "double", status, points, 1, message),
            Result("02_next", "triple", PASSED, 2, 2),
        ]

    people = {"Ann Lee_4711_assignsubmission_file_": 1, "leebob_LATE_12_34_x": 0, "=cmd()": 0}
    reports = [Report(name, results(points)) for name, points in people.items()]
    reports[1].notes.append("01_tiny: was not handed in")
    return Graded(reports, ["01_tiny", "02_next"], True)


def test_moodle_finds_participants(graded):
    rows = list(csv.DictReader(moodle(graded).splitlines()))
    assert [row["Identifier"] for row in rows] == ["Participant 4711", "Participant 12", ""]
    assert [row["Full name"] for row in rows] == ["Ann Lee", "leebob", "'=cmd()"]
    assert [(row["Grade"], row["Maximum Grade"]) for row in rows] == [("3", "3"), *[("2", "3")] * 2]
    assert rows[1]["Feedback comments"] == "1 of 2 passed; double: failed"


def test_canvas_has_a_column_for_each_lesson(graded):
    possible, *rows = csv.DictReader(canvas(graded).splitlines())
    assert possible["Student"].strip() == "Points Possible"
    assert (possible["01_tiny"], possible["02_next"]) == ("1", "2")
    assert [(row["ID"], row["01_tiny"], row["02_next"]) for row in rows] == [
        ("4711", "1", "2"),
        ("12", "0", "2"),
        ("", "0", "2"),
    ]


def test_gradescope_gets_a_test_for_each_exercise(graded):
    results = json.loads(gradescope(graded.reports[1]))
    assert results["score"] == 2
    assert results["output"] == "01_tiny: was not handed in"
    assert [(t["score"], t["max_score"], t["status"]) for t in results["tests"]] == [
        (0, 1, "failed"),
        (2, 2, "passed"),
    ]
    assert results["tests"][0]["output"] == "double does not pass yet"


def test_they_are_in_the_report(graded, tmp_path):
    write_reports(graded, tmp_path)
    assert (tmp_path / "moodle.csv").read_text() == moodle(graded)
    assert (tmp_path / "canvas.csv").read_text() == canvas(graded)
    assert len(list((tmp_path / "gradescope").iterdir())) == 3


def test_parts_graded_elsewhere_are_put_together_without_running_anything(
    one_grader, tmp_path, monkeypatch
):
    course = tiny.write_course(tmp_path / "course")
    for number in range(5):
        folder = tmp_path / "in" / f"student {number}"
        folder.mkdir(parents=True)
        answer = f"def double(x):\n    return x + x + {number % 2}"
        nbformat.write(tiny.answered(course.root, double=answer), folder / "01_tiny.ipynb")

    def run(**settings) -> Graded:
        return grade(
            tmp_path / "in",
            tmp_path / "report",
            untouched(course.root),
            tiny.EXERCISES,
            Settings(["01_tiny"], **settings),
        )

    seen = [report.student for n in (1, 2, 3) for report in run(part=(n, 3)).reports]
    assert sorted(seen) == [f"student {number}" for number in range(5)]
    monkeypatch.setattr("course_lib.classroom.grading.batch._Batch._take", None)
    assert [report.points for report in run().reports] == [1, 0, 1, 0, 1]


def test_parts_need_to_be_told_what_was_assigned(tmp_path):
    course = tiny.write_course(tmp_path / "course")
    (tmp_path / "in").mkdir()
    for settings, words in (
        (Settings(part=(1, 2)), "say what was assigned"),
        (Settings(["01_tiny"], part=(3, 2)), "no part 3 of 2"),
    ):
        with pytest.raises(ValueError, match=words):
            grade(
                tmp_path / "in",
                tmp_path / "report",
                untouched(course.root),
                tiny.EXERCISES,
                settings,
            )
    assert _part("2/8") == (2, 8)
    with pytest.raises(ValueError, match="such as 2/8"):
        _part("second")


def test_the_rest_is_foretold_from_the_pace(monkeypatch, capsys):
    clock = iter([0.0, 30.0, 100.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = _Progress()
    progress(10, 40, "ann")
    assert "10/40 answers, about 1 min 30 s left" in capsys.readouterr().err
    assert progress.over().startswith("1 min 40 s, ")
    assert _duration(7325) == "2 h 2 min"


def test_late_days_cost_a_share(one_grader, tmp_path):
    course = tiny.write_course(tmp_path / "course")
    due = 1_700_000_000
    for student, hours in (("early", -1), ("late", 1), ("later", 25), ("never", 24 * 50)):
        file = tmp_path / "in" / student / "01_tiny.ipynb"
        file.parent.mkdir(parents=True)
        nbformat.write(tiny.answered(course.root, double=tiny.ANSWERS["double"]), file)
        os.utime(file, (due + 3600 * hours,) * 2)
    graded = grade(
        tmp_path / "in",
        tmp_path / "report",
        untouched(course.root),
        tiny.EXERCISES,
        Settings(deadline=Deadline(due, 0.25)),
    )
    assert [report.points for report in graded.reports] == [1, 0.75, 0.5, 0]
    assert [report.notes for report in graded.reports] == [
        [],
        ["01_tiny: 1 day late"],
        ["01_tiny: 2 days late"],
        ["01_tiny: 50 days late"],
    ]
    with pytest.raises(ValueError, match="a share of 0 to 1, not 2"):
        Deadline(due, 2)


def test_a_preview_is_what_the_student_is_told(one_grader, tmp_path, monkeypatch, capsys):
    course = tiny.write_course(tmp_path / "course")
    monkeypatch.setattr("course_lib.classroom.__main__.ROOT", course.root)
    monkeypatch.setattr("course_lib.classroom.__main__.all_exercises", lambda: tiny.EXERCISES)
    file = tmp_path / "mine.ipynb"
    nbformat.write(tiny.answered(course.root, double="def double(x):\n    return x"), file)
    assert main(["preview", str(file)]) == 0
    said = capsys.readouterr().out
    assert "double: failed, 0 of 1\n  double does not pass yet. What was run: x = 7" in said
    assert "quadruple: not attempted, 0 of 2" in said
    assert main(["preview", str(tmp_path / "none.ipynb")]) == 2
