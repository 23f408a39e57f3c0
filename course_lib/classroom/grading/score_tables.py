"""Scores as spreadsheets and learning platforms take them: CSV, and results for Gradescope.

Moodle: Gradebook, Import, CSV file; map "ID" or "Full name". Canvas: Grades, Import, where the
columns SIS User ID and SIS Login ID may stay empty. Gradescope: results.json, what its autograder
leaves for one submission.
"""

import csv
import io
import json
import re
from pathlib import Path

from .batch import Graded
from .points import PASSED, Report, Result

# What the platforms make of names in the archive of all submissions:
# "Ann Lee_4711_assignsubmission_file_" and "leeann_4711_87_file" or "leeann_LATE_4711_87_file".
_MOODLE = re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_\w+")
_CANVAS = re.compile(r"(?P<name>[^_]+?)_(?:LATE_)?(?P<id>\d+)_\d+(?:_.*)?")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_tables(graded: Graded, out: Path) -> None:
    """Write scores.csv, moodle.csv, canvas.csv and similar.csv into `out`."""
    (out / "scores.csv").write_text(scores(graded), encoding="utf-8", errors="replace")
    (out / "moodle.csv").write_text(moodle(graded), encoding="utf-8", errors="replace")
    (out / "canvas.csv").write_text(canvas(graded), encoding="utf-8", errors="replace")
    (out / "similar.csv").write_text(similar(graded), encoding="utf-8", errors="replace")


def scores(graded: Graded) -> str:
    """A row for each student, with a column for each exercise."""
    names = [result.exercise for result in graded.reports[0].results]
    rows = [["student", *names, "points", "maximum", "notes"]]
    for report in graded.reports:
        points = [f"{result.points:g}" for result in report.results]
        notes = "; ".join(report.all_notes())
        rows.append([report.student, *points, *_points(report), notes])
    return _table(rows)


def moodle(graded: Graded) -> str:
    """Identifier, name, grade, maximum and feedback, as in Moodle's offline grading worksheet."""
    rows = [["Identifier", "ID", "Full name", "Grade", "Maximum Grade", "Feedback comments"]]
    for report in graded.reports:
        name, number = _person(report.student)
        identifier = f"Participant {number}" if number else ""
        rows.append([identifier, number, name, *_points(report), feedback(report)])
    return _table(rows)


def canvas(graded: Graded) -> str:
    """A row for each student, a column for each lesson, and Canvas's row of points possible."""
    lessons = graded.lessons
    rows = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *lessons]]
    if graded.reports:
        first = graded.reports[0]
        possible = [sum(r.maximum for r in first.results if r.lesson == name) for name in lessons]
        rows.append(["    Points Possible", "", "", "", "", *(f"{worth:g}" for worth in possible)])
    for report in graded.reports:
        name, number = _person(report.student)
        had = [sum(r.points for r in report.results if r.lesson == name_) for name_ in lessons]
        rows.append([name, number, "", "", "", *(f"{points:g}" for points in had)])
    return _table(rows)


def gradescope(report: Report) -> str:
    """The results.json of one submission."""
    return json.dumps(
        {
            "score": report.points,
            "output": "\n".join(report.notes),
            "tests": [_test(result) for result in report.results],
        },
        indent=1,
    )


def similar(graded: Graded) -> str:
    """A row for each group of students with the same answers (`similar_answers`)."""
    rows = [
        [f"{len(each.exercises)}", "; ".join(each.exercises), "; ".join(each.students)]
        for each in graded.similar
    ]
    return _table([["Count", "Exercises", "Students"], *rows])


def feedback(report: Report) -> str:
    """In a few words, what a student has: for a cell of a table."""
    passed = [r.exercise for r in report.results if r.status == PASSED]
    others = [f"{r.exercise}: {r.status}" for r in report.results if r.status != PASSED]
    return "; ".join([f"{len(passed)} of {len(report.results)} passed", *others])


def _test(result: Result) -> dict[str, object]:
    return {
        "name": f"{result.lesson}: {result.exercise}",
        "score": result.points,
        "max_score": result.maximum,
        "status": "passed" if result.status == PASSED else "failed",
        "output": result.message or result.status,
        "visibility": "visible",
    }


def _points(report: Report) -> tuple[str, str]:
    return f"{report.points:g}", f"{report.maximum:g}"


def _person(student: str) -> tuple[str, str]:
    """Name and number of a student whose folder a platform has named; else the name alone."""
    for pattern in (_MOODLE, _CANVAS):
        if match := pattern.fullmatch(student):
            return match["name"], match["id"]
    return student, ""


def _table(rows: list[list[str]]) -> str:
    """CSV, in which no cell is a formula to a spreadsheet."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in row])
    return file.getvalue()
