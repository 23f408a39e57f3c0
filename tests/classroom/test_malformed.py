"""Notebooks that have suffered on their way: each gets its row, its maximum and a note, at least.

The answers that can still be found count.
"""

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
import zipfile

import pytest

from course_lib.classroom.grading.batch import grade
from course_lib.classroom.grading.reports import write_reports
from course_lib.classroom.grading.settings import Settings
from course_lib.classroom.grading.submissions import LARGEST
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny

STUB = 'def double(x):\n    """Twice `x`."""\n    raise NotImplementedError("not attempted yet")'
ALL = 7  # points of the three exercises


def cells(notebook: dict) -> list[dict]:
    return notebook["cells"]


def find(notebook: dict, identity: str) -> dict:
    return next(cell for cell in cells(notebook) if cell["id"] == identity)


def without(*identities):
    def change(notebook):
        kept = [cell for cell in cells(notebook) if cell["id"] not in identities]
        notebook["cells"] = kept

    return change


def doubled(notebook):
    """Pasted once more, as Jupyter does: a new id, nbgrader's own id twice; the last is wrong."""
    copy = json.loads(json.dumps(find(notebook, "answer-double"))) | {"id": "fresh"}
    copy["source"] = "def double(x):\n    return 0"
    cells(notebook).append(copy)


def reordered(notebook):
    cells(notebook).reverse()


def retyped(notebook):
    cell = find(notebook, "answer-double")
    cell["cell_type"] = "markdown"
    for key in ("outputs", "execution_count"):
        del cell[key]


def syntax_error(notebook):
    find(notebook, "answer-double")["source"] = "def double(x)\n    return x + x"


def no_metadata(notebook):
    for cell in cells(notebook):
        cell["metadata"] = {}
        del cell["id"]


def null_metadata(notebook):
    notebook["metadata"] = None
    for cell in cells(notebook):
        cell["metadata"] = None


def odd_sources(notebook):
    """As other editors write them: a list of lines, Windows line ends."""
    for cell in cells(notebook):
        lines = cell["source"].split("\n")
        cell["source"] = [line + "\r\n" for line in lines[:-1]] + lines[-1:]
    cells(notebook).append({"cell_type": "code", "source": 5, "metadata": []})
    cells(notebook).append("no cell at all")


def huge_output(notebook):
    find(notebook, "answer-double")["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": "x" * 5_000_000}
    ]


def other_cell(notebook):
    """The answer written below its cell, which stays as it was."""
    index = cells(notebook).index(find(notebook, "answer-double"))
    untouched = json.loads(json.dumps(find(notebook, "answer-double")))
    untouched["source"] = STUB
    own = find(notebook, "answer-double")
    own["id"], own["metadata"] = "mine", {}
    cells(notebook).insert(index, untouched)


def helper_in_a_cell_of_its_own(notebook):
    index = cells(notebook).index(find(notebook, "answer-double"))
    cell = {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": []}
    cells(notebook).insert(index, cell | {"source": "def helper(x):\n    return x + x"})
    find(notebook, "answer-double")["source"] = "def double(x):\n    return helper(x)"


def changed_check(notebook):
    find(notebook, "check-double")["source"] = "print('double: passed')"


def forged(notebook):
    """Points for everybody, and the wrong answer in another exercise's name."""
    for cell in cells(notebook):
        cell["metadata"]["nbgrader"] = {"grade": True, "points": 1000, "grade_id": "check-double"}
    find(notebook, "answer-double")["source"] = "def double(x):\n    return 0"


def broken_neighbours(notebook):
    for source in ("this is no python", "%%bash\nrm -rf /", "raise SystemExit", "?double"):
        cell = {"cell_type": "code", "id": "x", "metadata": {}, "outputs": [], "source": source}
        cells(notebook).insert(2, cell)


def scratch_below(notebook):
    """A function that is right, and tries below it that raise or call the check."""
    find(notebook, "answer-double")["source"] += (
        "\n%timeit double(3)\ncheck(double)\nhint(double)\nprint(1 / 0)"
    )


# What was done to a notebook with all answers right -> points that are left, words of a note.
CHANGES = {
    "check cell deleted": (without("check-double"), ALL, "the check of double is missing"),
    "answer cell deleted": (without("answer-double"), 4 + 2, "its cell is missing"),
    "both deleted": (without("answer-double", "check-double"), 4 + 2, "its cell is missing"),
    "cell doubled": (doubled, ALL - 1, "the last one counts"),
    "cells reordered": (reordered, ALL, "another order"),
    "cell became markdown": (retyped, ALL, "has become markdown"),
    "syntax error": (syntax_error, ALL - 1, ""),
    "metadata and ids gone": (no_metadata, ALL, "lost their ids"),
    "metadata null": (null_metadata, ALL, ""),
    "another editor's rewrite": (odd_sources, ALL, ""),
    "huge output": (huge_output, ALL, ""),
    "answer in another cell": (other_cell, ALL, "in another cell than its own"),
    "helper in another cell": (
        helper_in_a_cell_of_its_own,
        ALL,
        "helper is defined in another cell",
    ),
    "check changed": (changed_check, ALL, "the check of double was changed"),
    "metadata forged": (forged, ALL - 1, ""),
    "broken cells around": (broken_neighbours, ALL, ""),
    "scratch below": (scratch_below, ALL, ""),
}


def version_3(text: str) -> bytes:
    old = []
    for cell in json.loads(text)["cells"]:
        changed = {"cell_type": cell["cell_type"], "metadata": {}}
        changed["input" if cell["cell_type"] == "code" else "source"] = cell["source"]
        old.append(changed)
    return json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": old}]}).encode()


def zipped(text: str) -> bytes:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep/folder/01_tiny.ipynb", text)
        archive.writestr("../../escaped.ipynb", "{}")
        archive.writestr("__MACOSX/._01_tiny.ipynb", b"\x00\x05")
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("again.zip", inner.getvalue())
    return outer.getvalue()


def bomb(text: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("01_tiny.ipynb", b" " * (LARGEST + 1))
    return file.getvalue()


# What became of the file: its name, its bytes -> points, words of a note.
FILES = {
    "empty file": ("01_tiny.ipynb", lambda text: b"", 0, "the file is empty"),
    "cut short": ("01_tiny.ipynb", lambda t: t[: len(t) // 2].encode(), 0, "cut short"),
    "binary": ("01_tiny.ipynb", lambda t: bytes(range(256)) * 9, 0, "not JSON"),
    "a page": ("01_tiny.ipynb", lambda t: b"<!DOCTYPE html>", 0, "not JSON"),
    "no notebook": ("01_tiny.ipynb", lambda t: b'{"a": 1}', 0, "without cells"),
    "a list": ("01_tiny.ipynb", lambda t: b"[1, 2]", 0, "without cells"),
    "no cells": ("01_tiny.ipynb", lambda t: b'{"cells": []}', 0, "has no cells"),
    "nested deeply": ("01_tiny.ipynb", lambda t: b"[" * 200_000, 0, "nested too deeply"),
    "version 3": ("01_tiny.ipynb", version_3, ALL, "lost their ids"),
    "utf-16": ("01_tiny.ipynb", lambda t: t.encode("utf-16"), ALL, ""),
    "byte order mark": ("01_tiny.ipynb", lambda t: b"\xef\xbb\xbf" + t.encode(), ALL, ""),
    "another name": ("homework (2) FINAL.ipynb", str.encode, ALL, ""),
    "another notebook": (
        *("holiday.ipynb", lambda t: b'{"cells": [{"cell_type": "code", "source": "1"}]}'),
        *(0, "no notebook of this course"),
    ),
    "zip in zip": ("all.zip", zipped, ALL, ""),
    "zip bomb": ("all.zip", bomb, 0, "MiB"),
    "no zip": ("all.zip", lambda t: b"PK\x03\x04 and no more", 0, "cannot be opened"),
    "python file": ("01_tiny.py", str.encode, ALL, "not called like one"),
    "too large": ("01_tiny.ipynb", lambda t: b" " * (LARGEST + 1), 0, "clear its outputs"),
}


@pytest.fixture(scope="module")
def batch(one_grader_for_all, tmp_path_factory):
    """All of them graded and reported; (reports by name, folder of the report)."""
    folder = tmp_path_factory.mktemp("malformed")
    course = tiny.write_course(folder / "course")
    right = json.dumps(tiny.answered(course.root, **tiny.ANSWERS))
    submissions = folder / "in"
    for name, (change, _, _) in CHANGES.items():
        notebook = json.loads(right)
        change(notebook)
        (submissions / name).mkdir(parents=True)
        (submissions / name / "01_tiny.ipynb").write_text(json.dumps(notebook))
    for name, (file, change, _, _) in FILES.items():
        (submissions / name).mkdir()
        (submissions / name / file).write_bytes(change(right))
    (submissions / "empty folder").mkdir()
    (submissions / "link").mkdir()
    (submissions / "link" / "01_tiny.ipynb").symlink_to(course.root / "solutions/01_tiny.ipynb")
    (submissions / "dan_01_tiny.ipynb").write_text(right)
    (submissions / "=cmd()").mkdir()
    (submissions / "=cmd()" / "01_tiny.ipynb").write_text(right)
    out = folder / "report"
    graded = grade(submissions, out, untouched(course.root), tiny.EXERCISES, Settings(["01_tiny"]))
    write_reports(graded, out)
    return {report.student: report for report in graded.reports}, out


EXPECTED = {
    **{name: (points, words) for name, (_, points, words) in CHANGES.items()},
    **{name: (points, words) for name, (_, _, points, words) in FILES.items()},
    "empty folder": (0, "no notebook was handed in"),
    "link": (0, "links are not followed"),
    "dan": (ALL, ""),
    "=cmd()": (ALL, ""),
}


def notes_of(report) -> str:
    notes = [*report.notes, *(reason for _, reason, _ in report.odd)]
    return "; ".join(notes + [note for r in report.results for note in r.notes])


@pytest.mark.parametrize("name", EXPECTED)
def test_it_has_a_row_its_maximum_and_a_note(batch, name):
    reports, _ = batch
    points, words = EXPECTED[name]
    report = reports[name]
    assert report.maximum == ALL
    assert report.points == points, [(r.exercise, r.status, r.message) for r in report.results]
    assert words in notes_of(report)


def test_everybody_is_in_every_report(batch):
    _, out = batch
    rows = list(csv.reader((out / "scores.csv").read_text().splitlines()))
    assert len(rows) == 1 + len(EXPECTED)
    assert {row[0].lstrip("'") for row in rows[1:]} == set(EXPECTED)
    assert all(row[-2] == f"{ALL}" for row in rows[1:])
    assert not any(cell.startswith("=") for row in rows for cell in row)
    scores = json.loads((out / "scores.json").read_text())
    assert {entry["student"] for entry in scores} == set(EXPECTED)
    suites = ElementTree.parse(out / "junit.xml").getroot()
    assert {suite.get("name") for suite in suites} == set(EXPECTED)
    assert {len(suite) for suite in suites} == {3}
    assert len(list((out / "students").iterdir())) == len(EXPECTED)
    overview = (out / "index.html").read_text()
    assert "=cmd()" in overview
    assert f"{len(EXPECTED)} submissions" in overview


def test_what_is_odd_is_put_aside_with_its_reason(batch):
    _, out = batch
    assert (out / "odd/cut_short/reasons.txt").read_text().startswith("01_tiny: it is cut short")
    assert [path.name for path in (out / "odd/binary").iterdir()] != ["reasons.txt"]
    assert not (out / "odd/dan").exists()


def test_there_are_enough_of_them():
    assert len(CHANGES) + len(FILES) >= 20
